// What is looked at: a span of one sequence. Everything that moves goes through here.

class View {
  constructor(lengths) {
    this.lengths = lengths;
    this.listeners = [];
    this.place = 0;
    this.start = 0;
    this.end = lengths[0] || 1;
  }

  get length() { return this.lengths[this.place] || 1; }
  get span() { return this.end - this.start; }
  get least() { return Math.min(40, this.length); }

  /** Look at a span, as much of it as there is. */
  show(place, start, end) {
    this.place = place;
    const span = clamp(end - start, this.least, this.length);
    const middle = (start + end) / 2;
    this.start = clamp(middle - span / 2, 0, this.length - span);
    this.end = this.start + span;
    for (const listener of this.listeners) listener();
  }

  move(bases) { this.show(this.place, this.start + bases, this.end + bases); }

  /** Zoom, by more than 1 out and by less than 1 in, so that a place stays where it is. */
  zoom(factor, around = (this.start + this.end) / 2) {
    const span = clamp(this.span * factor, this.least, this.length);
    const start = around - (around - this.start) * (span / this.span);
    this.show(this.place, start, start + span);
  }

  all() { this.show(this.place, 0, this.length); }

  /** Look at a feature with something around it. */
  frame(place, start, end) {
    const around = Math.max((end - start) * 0.6, 60);
    this.show(place, start - around, end + around);
  }
}
