// Painting genes, called and true: arrows on two rows, the forward strand above.

function paintGenes(brush, lane, selected) {
  paintFeatures(brush, lane, brush.data.genes, selected, (k) => `c${brush.data.genes.frame[k] + 1}`);
}

function paintTruth(brush, lane) {
  paintFeatures(brush, lane, brush.data.truth, -1, () => "truth");
}

/** The features of a sequence that a span touches; genes are in order of their starts, and one may be over the origin. */
function* featuresIn(features, place, start, end) {
  for (let k = features.first[place]; k < features.first[place + 1]; k += 1) {
    for (const piece of features.pieces[k]) if (piece[0] < end && piece[1] > start) yield [k, piece];
  }
}

function paintFeatures(brush, lane, features, selected, color) {
  const { view } = brush, height = (lane.height - 6) / 2;
  brush.context.beginPath();
  brush.context.rect(brush.left, lane.top - 2, brush.width, lane.height + 4);
  brush.context.clip();
  for (const [k, piece] of featuresIn(features, view.place, view.start, view.end)) {
    const isForward = features.strand[k] > 0, top = lane.top + (isForward ? 0 : height + 6);
    const left = Math.max(brush.x(piece[0]), brush.left - 20);
    const right = Math.max(Math.min(brush.x(piece[1]), brush.left + brush.width + 20), left + 1);
    if (right - left < 6) plain(brush.context, left, right, top, height);
    else arrow(brush.context, left, right, top, height, isForward);
    brush.context.globalAlpha = features.pseudo?.[k] ? 0.4 : 1;
    brush.context.fillStyle = brush.colors[color(k)];
    brush.context.fill();
    brush.context.globalAlpha = 1;
    if (k === selected) {
      brush.context.strokeStyle = brush.colors.ink;
      brush.context.lineWidth = 2;
      brush.context.stroke();
    }
    if (features.match?.[k] === "wrong" || features.missed?.[k]) brush.fill("warn", left, top + height - 3, right - left, 3);
    nameFeature(brush, features.name[k], left, right, top + height / 2, brush.colors[color(k)]);
  }
}

function plain(context, left, right, top, height) {
  context.beginPath();
  context.rect(left, top, right - left, height);
}

function arrow(context, left, right, top, height, isForward) {
  const head = Math.min(height / 2, right - left), bottom = top + height, middle = top + height / 2;
  context.beginPath();
  if (isForward) {
    context.moveTo(left, top);
    context.lineTo(right - head, top);
    context.lineTo(right, middle);
    context.lineTo(right - head, bottom);
    context.lineTo(left, bottom);
  } else {
    context.moveTo(right, top);
    context.lineTo(left + head, top);
    context.lineTo(left, middle);
    context.lineTo(left + head, bottom);
    context.lineTo(right, bottom);
  }
  context.closePath();
}

/** Write a name within an arrow if it fits, in black or white, whichever stands out. */
function nameFeature(brush, name, left, right, y, background) {
  const from = Math.max(left, brush.left), room = Math.min(right, brush.left + brush.width) - from - 22;
  if (room < 30) return;
  brush.context.font = "11px system-ui, sans-serif";
  const shown = fitting(brush.context, name, room);
  if (shown) brush.text(shown, (from + from + room + 22) / 2, y + 0.5, { color: inkOn(background), align: "center", size: 11 });
}

/** The name, else its end, which tells genes of one sequence apart, else nothing. */
function fitting(context, name, room) {
  if (context.measureText(name).width <= room) return name;
  const short = /_(\d+)$/.exec(name);
  return short && context.measureText(`\u2026${short[0]}`).width <= room ? `\u2026${short[0]}` : "";
}

function inkOn(background) {
  const parts = background.match(/[\d.]+/g).map(Number);
  const scale = background.startsWith("rgb") ? 255 : 1;
  const [red, green, blue] = parts.map((part) => part / scale);
  return 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 ? "#111111" : "#ffffff";
}
