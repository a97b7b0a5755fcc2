// Finding: a gene by its name, a sequence by its name, or a position.

const MOST_FOUND = 12;

/** Read NAME, NAME:POSITION, NAME:START-END, POSITION or START-END; positions count from 1. Null if it is none. */
function placeOf(data, text, current) {
  const whole = data.sequences.name.indexOf(text);
  if (whole >= 0) return { place: whole, start: 0, end: data.sequences.length[whole] };
  const match = /^(?:(.*):)?\s*([\d,]+)(?:\s*[-\u2013]\s*([\d,]+))?$/s.exec(text);
  if (!match) return null;
  const place = match[1] === undefined ? current : data.sequences.name.indexOf(match[1]);
  const number = (digits) => Number(digits.replaceAll(",", ""));
  const from = number(match[2]), to = match[3] === undefined ? null : number(match[3]);
  const length = data.sequences.length[place];
  if (place < 0 || from < 1 || from > length || (to !== null && to < from)) return null;
  if (to === null) return { place, start: from - 61, end: from + 60 };
  return { place, start: from - 1, end: Math.min(to, length) };
}

/** Return what fits a text: places first, then genes, then sequences; names that begin with it come first. */
function find(data, text, current) {
  const wanted = text.trim().toLowerCase(), found = [];
  if (!wanted) return found;
  const place = placeOf(data, text.trim(), current);
  if (place) found.push({ kind: "place", label: text.trim(), note: "position", ...place });
  for (const [features, note] of [[data.genes, "gene"], [data.truth, "truth"]]) {
    if (!features) continue;
    for (const k of matching(features.name, wanted, MOST_FOUND)) {
      const [start, end] = [features.start[k], features.end[k]];
      found.push({
        kind: note, label: features.name[k], place: features.place[k], start, end, number: k,
        note: `${note} ${features.strand[k] > 0 ? "+" : "\u2212"} ${spanText(start, end)}`,
      });
    }
  }
  for (const k of matching(data.sequences.name, wanted, MOST_FOUND)) {
    if (place && place.place === k && place.start === 0) continue;
    const length = data.sequences.length[k];
    found.push({ kind: "place", label: data.sequences.name[k], note: `${whole(length)} bases`, place: k, start: 0, end: length });
  }
  return found.slice(0, 2 * MOST_FOUND);
}

/** Indices of names that hold a text: the same first, then those that begin with it, then the rest. */
function matching(names, wanted, most) {
  const ranks = [[], [], []];
  for (let k = 0; k < names.length; k += 1) {
    const where = names[k].toLowerCase().indexOf(wanted);
    if (where < 0) continue;
    const rank = where > 0 ? 2 : names[k].length === wanted.length ? 0 : 1;
    if (ranks[rank].length < most) ranks[rank].push(k);
  }
  return ranks.flat().slice(0, most);
}
