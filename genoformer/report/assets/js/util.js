// Small things that everything else uses. Text is only ever set as text, never as HTML.

const byId = (id) => document.getElementById(id);
const whole = (value) => Math.round(value).toLocaleString("en-US");
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const modulo = (value, by) => ((value % by) + by) % by;

/** Make an element with text or children in it. */
function make(tag, content = "", attributes = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (Array.isArray(content)) made.append(...content);
  else made.textContent = content;
  return made;
}

/** Write a share from 0 to 1 in percent. */
const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)}%`;

/** Write a span of bases as people do: from 1, both ends included. */
const spanText = (start, end) => `${whole(start + 1)}\u2013${whole(end)}`;

/** Say on the page what went wrong. */
function complain(message) {
  byId("problem").textContent = message;
  byId("problem").hidden = false;
}
