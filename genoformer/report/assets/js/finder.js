// The field that finds: a list of what fits, chosen by arrows and Enter or by a click.

function finder(browser) {
  const input = byId("find"), list = byId("found");
  let found = [], chosen = 0;

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function draw() {
    list.replaceChildren(...found.map((one, k) => {
      const item = make("li", [make("span", one.label), make("span", one.note)], {
        role: "option", id: `found-${k}`, "aria-selected": String(k === chosen) });
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        go(k);
      });
      return item;
    }));
    if (!found.length) list.append(make("li", "nothing found", { class: "nothing" }));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (found.length) input.setAttribute("aria-activedescendant", `found-${chosen}`);
    byId(`found-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }

  function search() {
    found = find(browser.data, input.value, browser.view.place);
    chosen = 0;
    if (input.value.trim()) draw();
    else close();
  }

  function go(k) {
    close();
    visit(browser, found[k]);
    browser.stage.focus({ preventScroll: true });
  }

  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && found.length) go(chosen);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = modulo(chosen + (event.key === "ArrowDown" ? 1 : -1), Math.max(found.length, 1));
      draw();
    } else return;
    event.preventDefault();
  });
}

/** Go to what was found. */
function visit(browser, one) {
  if (one.kind === "place") browser.view.show(one.place, one.start, one.end);
  else browser.view.frame(one.place, one.start, one.end);
  if (one.kind === "gene") browser.select(one.number);
}
