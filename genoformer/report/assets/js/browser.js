// The browser: canvas, keys, pointer, and what is said about the place under the pointer.

const ZOOM = 2;

class Browser {
  constructor(data) {
    this.data = data;
    this.canvas = byId("canvas");
    this.stage = byId("stage");
    this.lanes = lanesOf(data);
    this.height = this.lanes[this.lanes.length - 1].top + this.lanes[this.lanes.length - 1].height + 10;
    this.selected = -1;
    this.view = new View(data.sequences.length);
    this.columns = new Columns(data, 0);
    this.waiting = false;
    this.recolor();
    byId("legend").append(...legendOf(data));
    this.view.listeners.push(() => this.changed());
    theme.listeners.push(() => this.recolor());
    tiles.listener = () => this.redraw();
    new ResizeObserver(() => this.redraw()).observe(this.stage);
    this.changed();
  }

  recolor() {
    this.colors = colorsOf(INKS);
    this.redraw();
  }

  /** Tell everyone that the view is another one. */
  changed() {
    const { view, data } = this;
    if (this.columns.place !== view.place) this.columns = new Columns(data, view.place);
    const name = data.sequences.name[view.place];
    byId("where").textContent = `${name}: ${spanText(Math.floor(view.start), Math.ceil(view.end))} of ${whole(view.length)} bases`;
    const select = byId("sequence"), value = String(view.place);
    if (![...select.options].some((option) => option.value === value)) select.append(make("option", name, { value }));
    select.value = value;
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** Where the drawing lies within the canvas. */
  get box() {
    const left = this.stage.clientWidth < 600 ? 46 : 64;
    return { left, width: Math.max(this.stage.clientWidth - left - 10, 50) };
  }

  draw() {
    const width = this.stage.clientWidth, ratio = Math.min(window.devicePixelRatio || 1, 3);
    if (!width) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, this.height);
    paint(new Brush(context, this.colors, this.data, this.view, this.columns, this.box), this.lanes, this.selected);
  }

  /** The position on the sequence at a place of the screen. */
  positionAt(clientX) {
    const { left, width } = this.box, x = clientX - this.canvas.getBoundingClientRect().left - left;
    return this.view.start + clamp(x / width, 0, 1) * this.view.span;
  }

  laneAt(clientY) {
    const y = clientY - this.canvas.getBoundingClientRect().top;
    return this.lanes.find((lane) => y >= lane.top - 3 && y < lane.top + lane.height + 3);
  }

  /** Select a gene, say what is known of it, and show it unless it is in view. */
  select(k, { move = true } = {}) {
    const { genes } = this.data;
    this.selected = k;
    byId("gene").hidden = k < 0;
    if (k >= 0) {
      byId("gene").replaceChildren(...geneFacts(this.data, k));
      const isSeen = genes.place[k] === this.view.place && genes.start[k] >= this.view.start && genes.end[k] <= this.view.end;
      if (move && !isSeen) this.view.frame(genes.place[k], genes.start[k], genes.end[k]);
    }
    this.redraw();
  }

  /** Go to the next gene of the sequence, or the one before. */
  step(by) {
    const { genes } = this.data;
    if (!genes) return;
    const first = genes.first[this.view.place], last = genes.first[this.view.place + 1] - 1;
    if (last < first) return;
    const middle = (this.view.start + this.view.end) / 2;
    let k = this.selected;
    if (k < first || k > last) {
      k = first;
      while (k < last && genes.start[k] < middle) k += 1;
    } else k = clamp(k + by, first, last);
    this.view.frame(this.view.place, genes.start[k], genes.end[k]);
    this.select(k);
  }
}

/** What is known of a gene, as a list. */
function geneFacts(data, k) {
  const { genes } = data, rows = [
    ["gene", genes.name[k]],
    ["place", `${data.sequences.name[genes.place[k]]}: ${spanText(genes.start[k], genes.end[k])}`],
    ["strand", genes.strand[k] > 0 ? "forward" : "reverse"],
    ["length", `${whole(genes.bases[k])} bases`],
  ];
  if (genes.codon[k]) rows.push(["start codon", genes.codon[k] === "Edge" ? "cut off" : genes.codon[k]]);
  if (genes.partial[k]) rows.push(["partial", "goes on beyond an edge or a gap"]);
  if (genes.posterior[k] !== null) rows.push(["posterior of the 3\u2032 end", percent(genes.posterior[k], 2)]);
  if (genes.match?.[k]) rows.push(["against the truth", MATCHES[genes.match[k]]]);
  return rows.map(([name, value]) => make("div", [make("dt", name), make("dd", value)]));
}

const MATCHES = {
  exact: "exactly there", "3' end": "there, with another start", wrong: "not there", "left out": "not scored",
};
