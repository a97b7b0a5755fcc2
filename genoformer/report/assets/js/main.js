// The start: read the data, set up the browser and the tables, go to the place that the address names.

const PERCENT = (value) => percent(value);
const SEQUENCE_COLUMNS = [
  { key: "name", label: "sequence", words: true }, { key: "length", label: "bases", text: whole },
  { key: "status", label: "status", words: true }, { key: "topology", label: "topology", words: true },
  { key: "predicted", label: "predicted", text: PERCENT }, { key: "gc", label: "GC", text: PERCENT },
  { key: "genes", label: "genes", text: whole }, { key: "coding", label: "in genes", text: PERCENT },
  { key: "confidence", label: "confidence", text: (value) => value.toFixed(3) },
  { key: "f1", label: "F1 by base", text: (value) => value.toFixed(4) },
  { key: "pearson", label: "Pearson", text: (value) => value.toFixed(4) },
  { key: "gene_f1", label: "F1 by gene", text: (value) => value.toFixed(4) },
];
const GENE_COLUMNS = [
  { key: "name", label: "gene", words: true }, { key: "sequence", label: "sequence", words: true },
  { key: "start", label: "start", text: (value) => whole(value + 1) }, { key: "end", label: "end", text: whole },
  { key: "sign", label: "strand", words: true }, { key: "bases", label: "length", text: whole },
  { key: "codon", label: "start codon", words: true },
  { key: "posterior", label: "posterior", text: (value) => percent(value, 2) },
  { key: "match", label: "in the truth", words: true },
];

/** Of some columns those that there are values for; a click on the first one goes where `go` says. */
function columnsFor(columns, values, go) {
  const there = columns.filter((column) => values[column.key]?.some((value) => value !== null && value !== ""));
  return there.map((column, k) => (k === 0 ? { ...column, go } : { ...column }));
}

function toBrowser() {
  byId("browser").scrollIntoView();
  byId("stage").focus({ preventScroll: true });
}

function listSequences(browser, values) {
  const go = (row) => {
    browser.view.show(row, 0, values.length[row]);
    toBrowser();
  };
  const about = (count) => (count === 1 ? "1 sequence" : `${whole(count)} sequences`);
  new Listing(byId("sequence-table"), { label: "sequences", columns: columnsFor(SEQUENCE_COLUMNS, values, go), values, about });
}

function listGenes(browser, data) {
  const { genes } = data;
  byId("genes").hidden = false;
  const values = { ...genes, sequence: genes.place.map((place) => data.sequences.name[place]) };
  values.sign = genes.strand.map((strand) => (strand > 0 ? "+" : "\u2212"));
  const go = (row) => {
    browser.view.frame(genes.place[row], genes.start[row], genes.end[row]);
    browser.select(row);
    toBrowser();
  };
  const about = (count) => (count === 1 ? "1 gene" : `${whole(count)} genes`);
  new Listing(byId("gene-table"), { label: "genes", columns: columnsFor(GENE_COLUMNS, values, go), values, about });
}

/** Go to the place after # in the address, such as #chr1:1000-2000, or to the gene of that name. */
function followAddress(browser) {
  let text = location.hash.slice(1);
  try {
    text = decodeURIComponent(text);
  } catch {
    return;
  }
  if (!text || byId(text)) return;
  const [first] = find(browser.data, text, browser.view.place);
  if (first && (first.kind === "place" || first.label === text)) visit(browser, first);
}

async function start() {
  theme.start();
  if (typeof DecompressionStream === "undefined") {
    complain("This browser is too old to unpack the data of this page; numbers and charts are below.");
    return;
  }
  const data = await readData();
  if (!data.sequences.length.length) {
    complain("There is not a single sequence to show.");
    byId("browser").hidden = true;
    return;
  }
  const longest = data.sequences.length.indexOf(Math.max(...data.sequences.length));
  const browser = new Browser(data);
  control(browser);
  browser.view.show(longest, 0, data.sequences.length[longest]);
  listSequences(browser, data.sequences);
  if (data.genes) listGenes(browser, data);
  followAddress(browser);
  window.addEventListener("hashchange", () => followAddress(browser));
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => complain(`The data of this page cannot be shown: ${error.message}`));
