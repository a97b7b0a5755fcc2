// What moves the browser: buttons, keys, wheel, pointers, and the field that finds.

function control(browser) {
  const { view, stage } = browser, quarter = () => view.span / 4;
  const actions = {
    left: () => view.move(-quarter()), right: () => view.move(quarter()),
    in: () => view.zoom(1 / ZOOM), out: () => view.zoom(ZOOM), all: () => view.all(),
  };
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  const keys = {
    ArrowLeft: actions.left, ArrowRight: actions.right, ArrowUp: actions.in, ArrowDown: actions.out,
    "+": actions.in, "=": actions.in, "-": actions.out, _: actions.out, 0: actions.all,
    PageUp: () => view.move(-view.span), PageDown: () => view.move(view.span),
    Home: () => view.move(-view.length), End: () => view.move(view.length),
    n: () => browser.step(1), p: () => browser.step(-1), Escape: () => browser.data.genes && browser.select(-1),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    byId("find").focus();
  });
  stage.addEventListener("wheel", (event) => wheel(browser, event), { passive: false });
  pointers(browser);
  finder(browser);
  sequences(browser);
}

/** Sideways moves; with Ctrl, or once the view has the focus, up and down zoom; else the page scrolls. */
function wheel(browser, event) {
  const { view } = browser;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.move((event.deltaX / browser.box.width) * view.span);
  else if (event.ctrlKey || event.metaKey || document.activeElement === browser.stage) {
    view.zoom(1.0015 ** clamp(event.deltaY, -400, 400), browser.positionAt(event.clientX));
  } else return;
  event.preventDefault();
}

/** Drag to move, pinch to zoom, click to select; on the map a click goes there. */
function pointers(browser) {
  const { canvas, view } = browser, down = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, event.clientX);
    moved = 0;
    if (browser.laneAt(event.clientY)?.kind === "map") jump(browser, event.clientX);
  });
  canvas.addEventListener("pointermove", (event) => {
    byId("readout").textContent = describe(browser.data, view, browser.columns, browser.positionAt(event.clientX));
    if (!down.has(event.pointerId)) return;
    const before = down.get(event.pointerId), [first, second] = [...down.keys()];
    const distance = () => Math.abs(down.get(first) - down.get(second));
    const apart = down.size > 1 ? distance() : 0;
    down.set(event.pointerId, event.clientX);
    moved += Math.abs(event.clientX - before);
    if (down.size > 1) {
      const middle = (down.get(first) + down.get(second)) / 2;
      if (distance() > 5 && apart > 5) view.zoom(apart / distance(), browser.positionAt(middle));
    } else if (moved > 3) {
      canvas.classList.add("moving");
      if (browser.laneAt(event.clientY)?.kind === "map") jump(browser, event.clientX);
      else view.move(((before - event.clientX) / browser.box.width) * view.span);
    }
  });
  const up = (event) => {
    if (down.delete(event.pointerId) && event.type === "pointerup" && moved <= 3) click(browser, event);
    canvas.classList.remove("moving");
  };
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, up);
  canvas.addEventListener("dblclick", (event) => view.zoom(1 / ZOOM, browser.positionAt(event.clientX)));
}

function jump(browser, clientX) {
  const { left, width } = browser.box, { view } = browser;
  const share = (clientX - browser.canvas.getBoundingClientRect().left - left) / width;
  view.move(clamp(share, 0, 1) * view.length - (view.start + view.end) / 2);
}

function click(browser, event) {
  const { genes } = browser.data;
  if (!genes || browser.laneAt(event.clientY)?.kind !== "genes") return;
  const at = browser.positionAt(event.clientX), slack = (browser.view.span / browser.box.width) * 2;
  const lane = browser.laneAt(event.clientY);
  const isUpper = event.clientY - browser.canvas.getBoundingClientRect().top < lane.top + lane.height / 2;
  for (const [k] of featuresIn(genes, browser.view.place, at - slack, at + slack)) {
    if (genes.strand[k] > 0 === isUpper) {
      browser.select(k, { move: false });
      return;
    }
  }
  browser.select(-1);
}

/** A choice of the longest sequences; all others are found by name or from the table. */
function sequences(browser) {
  const { data } = browser, { length, name } = data.sequences;
  const longest = length.map((_, k) => k).sort((a, b) => length[b] - length[a] || a - b).slice(0, 100);
  const select = byId("sequence");
  select.replaceChildren(...longest.map((k) => make("option", `${name[k]} (${whole(length[k])})`, { value: String(k) })));
  select.value = String(browser.view.place);
  select.addEventListener("change", () => browser.view.show(Number(select.value), 0, length[Number(select.value)]));
}
