// What the page holds: read from the element "data", unpacked, and indexed by sequence.

/** Unpack bytes: base64 of zlib data. */
async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function inflateJson(text) {
  return text === null ? null : JSON.parse(new TextDecoder().decode(await inflate(text)));
}

const inflateAll = async (texts) => (texts === null ? null : Promise.all(texts.map(inflate)));

/** Read everything but the tiles, which are unpacked when they are looked at. */
async function readData() {
  const data = JSON.parse(byId("data").textContent);
  const packed = data.overview;
  const [sequences, genes, truth] = await Promise.all([data.sequences, data.genes, data.truth].map(inflateJson));
  const [mean, low, high, trueSignals] = await Promise.all(
    [packed.mean, packed.low, packed.high, packed.true_signals].map(inflateAll),
  );
  Object.assign(data, { sequences, genes, truth, mean, low, high, trueSignals });
  data.gc = packed.gc === null ? null : await inflate(packed.gc);
  data.trueClasses = packed.true_classes === null ? null : await inflate(packed.true_classes);
  data.trueClassNames = packed.true_class_names;
  data.firstBin = firstBins(sequences.length, data.bin);
  data.tileAt = new Map(data.tiles.map((tile) => [`${tile.place}:${tile.start}`, tile]));
  for (const features of [genes, truth]) if (features) indexFeatures(features, sequences.length);
  return data;
}

function firstBins(lengths, size) {
  const first = [0];
  for (const length of lengths) first.push(first[first.length - 1] + Math.ceil(length / size));
  return first;
}

/** Add to features: where those of each sequence begin, their pieces, and the frame that colors them. */
function indexFeatures(features, lengths) {
  features.first = new Array(lengths.length + 1).fill(0);
  for (const place of features.place) features.first[place + 1] += 1;
  for (let k = 0; k < lengths.length; k += 1) features.first[k + 1] += features.first[k];
  features.pieces = features.place.map((place, k) => piecesOf(features, k, lengths[place]));
  features.frame = features.place.map((_, k) => frameOf(features, k));
}

/** The spans of a feature on its sequence; one that goes over the origin has a piece at either end. */
function piecesOf(features, k, length) {
  const parts = features.parts[k] || [[features.start[k], features.end[k]]];
  return parts.flatMap(([start, end]) => {
    if (end <= length) return [[start, end]];
    if (start >= length) return [[start - length, end - length]];
    return [[start, length], [0, end - length]];
  });
}

/** The reading frame at the 3' end: 0 to 2 on the forward strand, 3 to 5 on the reverse strand. */
function frameOf(features, k) {
  const pieces = features.pieces[k];
  const last = pieces[pieces.length - 1];
  if (features.strand[k] > 0) return modulo(last[1], 3);
  const lowest = features.parts[k] ? last[0] : features.start[k];
  return 3 + modulo(lowest + 2, 3);
}
