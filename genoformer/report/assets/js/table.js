// A table that can be sorted, filtered and leafed through; only the rows of one page are ever in the document.

const ROWS = 25;

class Listing {
  /**
   * columns: [{ key, label, words: bool, text: (value, row) => string, go: (row) => void }]; values: { key: [...] }
   */
  constructor(container, { label, columns, values, about }) {
    Object.assign(this, { container, columns, values, about });
    this.count = values[columns[0].key].length;
    this.rows = Array.from({ length: this.count }, (_, k) => k);
    this.sorted = null;
    this.page = 0;
    this.build(label);
    this.draw();
  }

  build(label) {
    this.filter = make("input", "", { type: "search", placeholder: "filter", "aria-label": `Filter ${label}` });
    this.filter.addEventListener("input", () => this.select());
    this.said = make("span", "", { class: "note", "aria-live": "polite" });
    this.head = make("tr", this.columns.map((column) => this.heading(column)));
    this.body = make("tbody");
    const table = make("table", [make("thead", [this.head]), this.body], { class: "listing" });
    this.back = make("button", "Previous", { type: "button" });
    this.next = make("button", "Next", { type: "button" });
    this.back.addEventListener("click", () => this.turn(-1));
    this.next.addEventListener("click", () => this.turn(1));
    this.pages = make("span", "", { class: "note" });
    const scrolls = make("div", [table], { class: "scrolls", tabindex: "0", role: "region", "aria-label": label });
    this.pager = make("div", [this.back, this.pages, this.next], { class: "pager" });
    this.container.append(make("div", [this.filter, this.said], { class: "filters" }), scrolls, this.pager);
  }

  heading(column) {
    const button = make("button", column.label, { type: "button" });
    button.addEventListener("click", () => this.sort(column));
    column.head = make("th", [button], { scope: "col", class: column.words ? "words" : "" });
    return column.head;
  }

  /** Keep the rows any of whose words hold what was typed. */
  select() {
    const wanted = this.filter.value.trim().toLowerCase();
    const words = this.columns.filter((column) => column.words).map((column) => this.values[column.key]);
    this.rows = [];
    for (let k = 0; k < this.count; k += 1) {
      if (!wanted || words.some((values) => String(values[k]).toLowerCase().includes(wanted))) this.rows.push(k);
    }
    this.page = 0;
    this.order();
    this.draw();
  }

  /** Sort by a column: numbers from the highest, words from the first; once more turns it round. */
  sort(column) {
    const down = this.sorted?.column === column ? !this.sorted.down : !column.words;
    this.sorted = { column, down };
    for (const other of this.columns) other.head.removeAttribute("aria-sort");
    column.head.setAttribute("aria-sort", down ? "descending" : "ascending");
    this.page = 0;
    this.order();
    this.draw();
  }

  order() {
    if (!this.sorted) return;
    const { column, down } = this.sorted, values = this.values[column.key];
    const between = column.words ? new Intl.Collator("en", { numeric: true }).compare : (a, b) => a - b;
    this.rows.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return (down ? -1 : 1) * between(x, y) || a - b;
    });
  }

  turn(pages) {
    this.page += pages;
    this.draw();
  }

  draw() {
    const last = Math.max(0, Math.ceil(this.rows.length / ROWS) - 1);
    this.page = clamp(this.page, 0, last);
    const first = this.page * ROWS, shown = this.rows.slice(first, first + ROWS);
    this.body.replaceChildren(...shown.map((row) => this.row(row)));
    const all = this.rows.length === this.count ? "" : `${whole(this.rows.length)} of `;
    this.said.textContent = `${all}${this.about(this.count)}`;
    this.pages.textContent = shown.length ? `${whole(first + 1)}\u2013${whole(first + shown.length)}` : "none";
    this.pager.hidden = last === 0;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
  }

  row(row) {
    const cells = this.columns.map((column) => {
      const value = this.values[column.key][row];
      const text = value === null ? "\u2013" : column.text ? column.text(value, row) : String(value);
      if (!column.go) return make("td", text, { class: column.words ? "words" : "", title: column.words ? text : "" });
      const button = make("button", text, { type: "button", class: "link", title: `Show ${text}` });
      button.addEventListener("click", () => column.go(row));
      return make("td", [button], { class: "words" });
    });
    return make("tr", cells);
  }
}
