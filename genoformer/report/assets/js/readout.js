// What is said about the place under the pointer.

/** Describe a position: its base, its values, the gene there. */
function describe(data, view, columns, position) {
  const at = clamp(Math.floor(position), 0, view.length - 1), parts = [whole(at + 1)];
  const tile = tiles.at(data, view.place, at), inTile = tile && at - tile.start < tile.bases ? at - tile.start : -1;
  if (inTile >= 0 && tile.letters) parts.push("ACGTN"[Math.min(tile.letters[inTile], 4)]);
  const bin = Math.floor(at / data.bin);
  const read = (c) => {
    const value = inTile >= 0 ? tile.rows[c][inTile] : columns.mean[c].levels[0][bin];
    return value === undefined || value === NONE ? NaN : value / (inTile >= 0 ? data.levels : 254);
  };
  const values = data.track.channels.map((_, c) => read(c));
  parts.push(Number.isNaN(values[0]) ? "not predicted" : valueWords(data, values, inTile >= 0 ? at : -1));
  if (inTile < 0) parts.push(`mean of ${data.bin} bases`);
  if (columns.gc && columns.gc.levels[0][bin] !== NONE) parts.push(`GC ${percent(columns.gc.levels[0][bin] / 254, 0)} in ${data.bin} bases`);
  const named = geneNames(data, view.place, at);
  if (named) parts.push(named);
  return parts.join(" \u00b7 ");
}

/** Write the highest values; of single bases codon positions are told instead of frames. */
function valueWords(data, values, at) {
  if (data.track.kind === "signal") {
    const steps = values.slice(0, 6).map((value, c) => {
      const [low, high] = data.limits[c];
      return `${data.track.channels[c]} ${(low + value * (high - low)).toPrecision(3)}`;
    });
    return steps.join(", ");
  }
  let named = values.map((value, c) => [value, data.track.channels[c]]);
  if (data.track.frames) {
    const none = Math.max(0, 1 - values.reduce((sum, value) => sum + value, 0));
    named = values.map((value, f) => [value, at >= 0 ? codonPosition(f, at) : `frame ${data.track.channels[f]}`]);
    named.push([none, "none"]);
  }
  named.sort((a, b) => b[0] - a[0]);
  return named.slice(0, 3).filter(([value], k) => k === 0 || value >= 0.01).map(([value, name]) => `${name} ${percent(value, 0)}`).join(", ");
}

/** The channel that a reading frame is at a position, such as +1. */
function codonPosition(frame, at) {
  return frame < 3 ? `+${modulo(at - frame, 3)}` : `\u2212${modulo(frame - 3 - at, 3)}`;
}

function geneNames(data, place, at) {
  if (!data.genes) return "";
  return [...featuresIn(data.genes, place, at, at + 1)].map(([k]) => data.genes.name[k]).join(", ");
}
