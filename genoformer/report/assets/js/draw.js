// Painting: each kind of lane has one function; all get the same brush.

const INKS = ["page", "panel", "ink", "soft", "rule", "accent", "warn", "gap", "gc", "truth",
  "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11"];

/** What painting needs: context, colors, data, view, columns, and the pixels of the drawing without its margin. */
class Brush {
  constructor(context, colors, data, view, columns, box) {
    Object.assign(this, { context, colors, data, view, columns }, box); // box: left, width
    this.across = view.span / this.width;
  }

  x(position) { return this.left + (position - this.view.start) / this.across; }
  pixels() { return new Float32Array(Math.ceil(this.width)); }

  fill(color, x, y, width, height) {
    this.context.fillStyle = this.colors[color] || color;
    this.context.fillRect(x, y, width, height);
  }

  text(words, x, y, { color = "soft", align = "left", size = 12, weight = 400 } = {}) {
    this.context.font = `${weight} ${size}px system-ui, sans-serif`;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillStyle = this.colors[color] || color;
    this.context.fillText(words, x, y);
  }
}

const painters = {
  map: paintMap, ruler: paintRuler, letters: paintLetters, frames: paintFrames, classes: paintClasses,
  signal: paintSignal, genes: paintGenes, truth: paintTruth, trueClasses: paintTrueClasses, gc: paintGc,
};

/** Paint all lanes. */
function paint(brush, lanes, selected) {
  for (const lane of lanes) {
    const { context } = brush;
    context.save();
    if (lane.label) brush.text(lane.label, brush.left - 8, lane.top + lane.height / 2, { align: "right" });
    painters[lane.kind](brush, lane, selected);
    context.restore();
  }
}

/** The whole sequence as a bar, and where the view is on it. */
function paintMap(brush, lane) {
  const { view, left, width } = brush, y = lane.top + 7, scale = width / view.length;
  brush.fill("gap", left, y, width, 8);
  const x = left + view.start * scale, wide = Math.max(view.span * scale, 4);
  brush.fill("accent", Math.min(x, left + width - wide), y - 3, wide, 14);
}

function paintRuler(brush, lane) {
  const { view, left, width, context } = brush;
  const step = niceStep(view.span / Math.max(2, width / 120));
  context.strokeStyle = brush.colors.rule;
  context.beginPath();
  let last = -Infinity;
  for (let at = Math.ceil((view.start + 1) / step) * step; at <= view.end; at += step) {
    const x = brush.x(at - 0.5), words = whole(at), half = words.length * 3.6;
    context.moveTo(x, lane.top + 17);
    context.lineTo(x, lane.top + 24);
    if (x - half < last + 8 || x - half < left || x + half > left + width) continue;
    brush.text(words, x, lane.top + 8, { align: "center" });
    last = x + half;
  }
  context.moveTo(left, lane.top + 23.5);
  context.lineTo(left + width, lane.top + 23.5);
  context.stroke();
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) || 10 * power;
}

/** Single bases, where they are held and far enough apart. */
function paintLetters(brush, lane) {
  const wide = 1 / brush.across, y = lane.top + lane.height / 2;
  if (wide < 7) {
    brush.text("zoom in to read them", brush.left, y);
    return;
  }
  const inks = ["c2", "c8", "c5", "c9", "soft"];
  let isHeld = false;
  for (let at = Math.max(0, Math.floor(brush.view.start)); at < brush.view.end; at += 1) {
    const code = codeAt(brush, at);
    if (code === null) continue;
    isHeld = true;
    brush.text("ACGTN"[Math.min(code, 4)], brush.x(at + 0.5), y, {
      color: inks[Math.min(code, 4)], align: "center", size: Math.min(14, wide + 3), weight: 600 });
  }
  if (!isHeld) brush.text("this page does not hold single bases here", brush.left, y);
}

function codeAt(brush, at) {
  const tile = tiles.at(brush.data, brush.columns.place, at);
  return tile && tile.letters && at - tile.start < tile.bases ? tile.letters[at - tile.start] : null;
}

/** Values of all channels for each pixel. */
function sampled(brush) {
  const pixels = brush.columns.mean.map((pyramid) => pyramid.sample(brush.view, brush.pixels()));
  refine(brush.data, brush.view, brush.columns, pixels);
  return pixels;
}

/** Frames of the forward strand stacked upwards, those of the reverse strand downwards. */
function paintFrames(brush, lane) {
  const pixels = sampled(brush), half = lane.height / 2, middle = lane.top + half, { left } = brush;
  brush.text("+", left - 8, lane.top + half / 2, { align: "right", size: 15 });
  brush.text("\u2212", left - 8, middle + half / 2, { align: "right", size: 15 });
  for (let x = 0; x < pixels[0].length; x += 1) {
    if (Number.isNaN(pixels[0][x])) {
      brush.fill("gap", left + x, lane.top, 1, lane.height);
      continue;
    }
    let up = middle, down = middle;
    for (let c = 0; c < 3; c += 1) {
      const above = pixels[c][x] * half, below = pixels[c + 3][x] * half;
      if (above > 0.2) brush.fill(`c${c + 1}`, left + x, up -= above, 1, above);
      if (below > 0.2) {
        brush.fill(`c${c + 4}`, left + x, down, 1, below);
        down += below;
      }
    }
  }
  brush.fill("soft", left, middle - 0.5, brush.width, 1);
}

/** Classes stacked from 0 to 1. */
function paintClasses(brush, lane) {
  const pixels = sampled(brush), inks = channelColors(brush.data), { left } = brush;
  brush.text("1", left - 8, lane.top + 5, { align: "right" });
  brush.text("0", left - 8, lane.top + lane.height - 5, { align: "right" });
  for (let x = 0; x < pixels[0].length; x += 1) {
    if (Number.isNaN(pixels[0][x])) {
      brush.fill("gap", left + x, lane.top, 1, lane.height);
      continue;
    }
    let y = lane.top + lane.height;
    for (let c = pixels.length - 1; c >= 0; c -= 1) {
      const height = Math.min(pixels[c][x] * lane.height, y - lane.top);
      if (height > 0.1) brush.fill(inks[c], left + x, y -= height, 1, height);
    }
  }
}

/** A signal as an area, as high as what is in view; its extremes behind it, the truth as a line. */
function paintSignal(brush, lane) {
  const { columns, left, data } = brush, c = lane.channel, ink = channelColors(data)[c];
  const pixels = sampled(brush)[c], isFine = brush.across < data.bin;
  const truth = columns.trueSignals && columns.trueSignals[c].sample(brush.view, brush.pixels());
  const [low, high] = data.limits[c], none = clamp(-low / (high - low), 0, 1); // where zero lies from 0 to 1
  const [least, most] = extent([pixels, truth || []], none);
  const y = (value) => lane.top + lane.height * clamp(1 - (value - least) / (most - least), 0, 1);
  if (columns.high && !isFine) paintExtremes(brush, columns, c, y, ink);
  for (let x = 0; x < pixels.length; x += 1) {
    if (Number.isNaN(pixels[x])) {
      brush.fill("gap", left + x, lane.top, 1, lane.height);
      continue;
    }
    const here = y(pixels[x]);
    brush.fill(ink, left + x, Math.min(here, y(none)), 1, Math.max(1, Math.abs(y(none) - here)));
  }
  if (truth) paintLine(brush, truth, y, "ink");
  brush.text(((most * (high - low)) + low).toPrecision(3), left + 4, lane.top + 7, { size: 11 });
  brush.fill("rule", left, y(none) - 0.5, brush.width, 1);
}

/** The lowest and the highest value, zero included, with a little room above. */
function extent(columns, none) {
  let least = none, most = none + 0.004;
  for (const column of columns) {
    for (const value of column) {
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  return [least, most + (most - least) * 0.15];
}

function paintExtremes(brush, columns, c, y, ink) {
  const high = columns.high[c].sample(brush.view, brush.pixels()), low = columns.low[c].sample(brush.view, brush.pixels());
  brush.context.globalAlpha = 0.3;
  for (let x = 0; x < high.length; x += 1) {
    if (!Number.isNaN(high[x])) brush.fill(ink, brush.left + x, y(high[x]), 1, Math.max(1, y(low[x]) - y(high[x])));
  }
  brush.context.globalAlpha = 1;
}

function paintLine(brush, pixels, y, color) {
  const { context } = brush;
  context.strokeStyle = brush.colors[color];
  context.lineWidth = 1.3;
  context.beginPath();
  let isDown = false;
  for (let x = 0; x < pixels.length; x += 1) {
    if (Number.isNaN(pixels[x])) isDown = false;
    else {
      context[isDown ? "lineTo" : "moveTo"](brush.left + x + 0.5, y(pixels[x]));
      isDown = true;
    }
  }
  context.stroke();
}

function paintGc(brush, lane) {
  const pixels = brush.columns.gc.sample(brush.view, brush.pixels(), Math.max(64, 4 * brush.across));
  const { left } = brush, [low, high] = brush.columns.gcRange;
  const y = (value) => lane.top + lane.height * (1 - clamp((value - low) / (high - low), 0, 1));
  for (const edge of [0, 0.5, 1]) brush.fill("rule", left, Math.round(lane.top + lane.height * edge) - 0.5, brush.width, 1);
  brush.text(percent(high, 0), left - 8, lane.top + 5, { align: "right", size: 11 });
  brush.text(percent(low, 0), left - 8, lane.top + lane.height - 5, { align: "right", size: 11 });
  paintLine(brush, pixels, y, "gc");
}

function paintTrueClasses(brush, lane) {
  const { data, columns, view, left } = brush, names = data.trueClassNames;
  const inks = data.track.frames ? ["gap", "c2", "c5"] : channelColors(data);
  for (let x = 0; x < brush.width; x += 1) {
    const bin = Math.floor((view.start + (x + 0.5) * brush.across) / data.bin), value = columns.trueClasses[bin];
    brush.fill(value === undefined || value >= names.length ? "page" : inks[value % inks.length], left + x, lane.top, 1, lane.height);
  }
}
