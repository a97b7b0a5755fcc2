// Values for the pixels of a view: base by base where a tile holds them, else means of bins, coarser ones from finer ones.

const COARSER = 4;
const NONE = 255;

/** Join bins by fours: "mean", "low" or "high" of those that have a value. */
function coarser(bins, how) {
  const joined = new Uint8Array(Math.ceil(bins.length / COARSER));
  for (let k = 0; k < joined.length; k += 1) {
    let sum = 0, count = 0, low = NONE, high = -1;
    for (let j = COARSER * k; j < Math.min(COARSER * (k + 1), bins.length); j += 1) {
      const value = bins[j];
      if (value === NONE) continue;
      sum += value;
      count += 1;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    joined[k] = count === 0 ? NONE : how === "mean" ? Math.round(sum / count) : how === "low" ? low : high;
  }
  return joined;
}

/** The bins of one column over one sequence, at every size. */
class Pyramid {
  constructor(column, first, last, size, how) {
    this.levels = [column.subarray(first, last)];
    this.size = size;
    this.how = how;
    while (this.levels[this.levels.length - 1].length > 64) {
      this.levels.push(coarser(this.levels[this.levels.length - 1], how));
    }
  }

  /** Fill an array with the value of each pixel, from 0 to 1, NaN where there is none. */
  sample(view, pixels, least = 0) {
    const across = (view.end - view.start) / pixels.length;
    let level = 0;
    while (level + 1 < this.levels.length && this.size * COARSER ** (level + 1) <= Math.max(across, least)) level += 1;
    const bins = this.levels[level], size = this.size * COARSER ** level;
    for (let x = 0; x < pixels.length; x += 1) {
      const from = Math.floor((view.start + x * across) / size);
      const to = Math.max(from + 1, Math.floor((view.start + (x + 1) * across) / size));
      pixels[x] = this.join(bins, from, Math.min(to, bins.length)) / 254;
    }
    return pixels;
  }

  join(bins, from, to) {
    let sum = 0, count = 0, low = Infinity, high = -Infinity;
    for (let j = Math.max(from, 0); j < to; j += 1) {
      if (bins[j] === NONE) continue;
      sum += bins[j];
      count += 1;
      low = Math.min(low, bins[j]);
      high = Math.max(high, bins[j]);
    }
    if (count === 0) return NaN;
    return this.how === "mean" ? sum / count : this.how === "low" ? low : high;
  }
}

/** All columns of the sequence that is looked at. */
class Columns {
  constructor(data, place) {
    const make = (columns, how) => columns && columns.map((column) =>
      new Pyramid(column, data.firstBin[place], data.firstBin[place + 1], data.bin, how));
    this.data = data;
    this.place = place;
    this.mean = make(data.mean, "mean");
    this.low = make(data.low, "low");
    this.high = make(data.high, "high");
    this.trueSignals = make(data.trueSignals, "mean");
    this.gc = data.gc && make([data.gc], "mean")[0];
    this.gcRange = this.gc && rangeOf(this.gc);
    this.trueClasses = data.trueClasses && data.trueClasses.subarray(data.firstBin[place], data.firstBin[place + 1]);
  }
}

/** Round limits of GC content in stretches of a thousand bases, so that they fit a lane. */
function rangeOf(pyramid) {
  const level = pyramid.levels[Math.min(3, pyramid.levels.length - 1)];
  const whole = level.length > 1 ? level.subarray(0, -1) : level; // the last bin may hold a base or two only
  const values = whole.filter((value) => value !== NONE);
  if (!values.length) return [0, 1];
  const low = Math.floor(values.reduce((a, b) => Math.min(a, b)) / 25.4) / 10;
  const high = Math.ceil(values.reduce((a, b) => Math.max(a, b)) / 25.4) / 10;
  return high - low >= 0.2 ? [low, high] : [Math.max(0, low - 0.1), Math.min(1, high + 0.1)];
}

/** Tiles that were unpacked, the latest few of them; whoever asks for others hears of it when they are there. */
const tiles = {
  kept: new Map(),
  most: 12,
  listener: () => {},

  /** The tile that holds a base, or null; it may come later. */
  at(data, place, position) {
    const start = Math.floor(position / data.tile) * data.tile;
    const key = `${place}:${start}`;
    if (tiles.kept.has(key)) return tiles.kept.get(key);
    const packed = data.tileAt.get(key);
    if (packed) tiles.load(data, key, packed);
    return null;
  },

  async load(data, key, packed) {
    tiles.kept.set(key, null);
    const bytes = await inflate(packed.data);
    const rows = [];
    for (let k = 0; k * packed.bases < bytes.length; k += 1) {
      rows.push(bytes.subarray(k * packed.bases, (k + 1) * packed.bases));
    }
    const letters = packed.letters ? rows.pop() : null;
    tiles.kept.delete(key);
    while (tiles.kept.size >= tiles.most) tiles.kept.delete(tiles.kept.keys().next().value);
    tiles.kept.set(key, { start: packed.start, bases: packed.bases, rows, letters });
    tiles.listener();
  },
};

/** Put the values of single bases into pixels that hold means, wherever a tile has them. */
function refine(data, view, columns, pixels) {
  const width = pixels[0].length, across = (view.end - view.start) / width;
  if (across >= data.bin) return;
  for (let x = 0; x < width; x += 1) {
    const from = Math.floor(view.start + x * across);
    const to = Math.max(from + 1, Math.floor(view.start + (x + 1) * across));
    const tile = from < 0 ? null : tiles.at(data, columns.place, from);
    if (!tile || from - tile.start >= tile.bases) continue;
    const last = Math.min(to - tile.start, tile.bases);
    for (let c = 0; c < pixels.length; c += 1) pixels[c][x] = meanOf(tile.rows[c], from - tile.start, last) / data.levels;
  }
}

function meanOf(row, from, to) {
  let sum = 0, count = 0;
  for (let j = from; j < to; j += 1) {
    if (row[j] !== NONE) {
      sum += row[j];
      count += 1;
    }
  }
  return count ? sum / count : NaN;
}
