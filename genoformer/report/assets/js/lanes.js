// Which lanes the browser has, one above the other, and how high each is.

const MOST_CHANNELS = 12;

/** Lanes from top to bottom: { kind, label, top, height }. */
function lanesOf(data) {
  const lanes = [{ kind: "map", label: "", height: 22 }, { kind: "ruler", label: "", height: 24 }];
  if (data.tiles.some((tile) => tile.letters)) lanes.push({ kind: "letters", label: "bases", height: 18 });
  if (data.track.frames) lanes.push({ kind: "frames", label: "", height: 150 });
  else if (data.track.kind === "class") lanes.push({ kind: "classes", label: "", height: 130 });
  else {
    const shown = data.track.channels.slice(0, MOST_CHANNELS);
    shown.forEach((label, channel) => lanes.push({ kind: "signal", label, channel, height: shown.length > 4 ? 54 : 76 }));
  }
  if (data.genes) lanes.push({ kind: "genes", label: "genes", height: 46 });
  if (data.truth) lanes.push({ kind: "truth", label: "truth", height: 46 });
  if (data.trueClasses) lanes.push({ kind: "trueClasses", label: "truth", height: 22 });
  if (data.gc) lanes.push({ kind: "gc", label: "GC", height: 54 });
  let top = 4;
  for (const lane of lanes) {
    lane.top = top;
    top += lane.height + 6;
  }
  return lanes;
}

/** The color of each channel that is drawn, by the name of its variable. */
function channelColors(data) {
  const shift = data.track.kind === "class" && !data.track.frames ? 0 : 1;
  return data.track.channels.map((_, k) => (k === 0 && shift === 0 ? "c0" : `c${1 + ((k + shift - 1) % 11)}`));
}

/** Explain colors beside the canvas. */
function legendOf(data) {
  const colors = channelColors(data);
  let names = data.track.channels;
  if (data.track.frames) names = names.map((name) => `${name[0] === "+" ? "forward" : "reverse"} frame ${name[1]}`);
  if (data.track.kind === "signal") names = [];
  const keys = names.map((name, k) => make("span", name, { class: `key ${colors[k]}` }));
  if (data.genes?.match) keys.push(make("span", "underlined: called but not true, true but not called"));
  if (data.track.kind === "signal" && data.track.channels.length > MOST_CHANNELS) {
    keys.push(make("span", `the first ${MOST_CHANNELS} of ${data.track.channels.length} channels are drawn`));
  }
  return keys;
}
