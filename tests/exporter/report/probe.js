// Works through each page as a user does: unfolds, selects, searches, changes the theme.

const wait = (time) => new Promise((done) => setTimeout(done, time));
async function probe(frame, errors) {
  const page = frame.contentDocument,
    count = (selector) => page.querySelectorAll(selector).length;
  const found = { hostile: frame.contentWindow.hostile === 1, title: page.querySelector("h1").textContent };
  const seen = () => count("#graph [role=tabpanel]:not([hidden]) .graph [data-id]");
  const inPanel = (selector) => [...page.querySelectorAll(`[role=tabpanel]:not([hidden]) ${selector}`)];
  const click = (text) =>
    inPanel("button")
      .filter((button) => button.textContent === text)
      .forEach((button) => button.click());
  const press = (item, name) => item.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  found.plots = count(".plot svg");
  found.points = count("circle.point");
  found.tolerances = count("line.tolerance");
  found.tables = count("table");
  found.headings = [...page.querySelectorAll("h2")].map((heading) => heading.textContent);
  found.unnamed = [...page.querySelectorAll("button, input, select, svg[role]")].filter(
    (item) => !(item.getAttribute("aria-label") || item.textContent.trim() || item.closest("label")),
  ).length;
  if (count("#graph")) {
    found.boxes = seen();
    click("Unfold all");
    found.unfolded = seen();
    click("Fold all");
    found.folded = seen();
    for (const name of ["ArrowDown", "ArrowDown", "Enter"]) press(inPanel(".graph")[0], name);
    found.opened = seen();
    found.chosen = count(".graph .chosen");
    found.details = count(".details dd");
    const [search] = inPanel("input[type=search]");
    search.value = "softmax";
    press(search, "Enter");
    found.search = inPanel("output")[0].textContent;
    page.querySelector("circle.point")?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    found.revealed = count("#panel-captured:not([hidden]) .graph .chosen");
    const colour = page.querySelector("#panel-captured select");
    if (colour) {
      colour.value = "error";
      colour.dispatchEvent(new Event("change"));
    }
    found.byError = count("#panel-captured [class*=error-]");
  }
  const colours = () => ["backgroundColor", "color"].map((name) => getComputedStyle(page.body)[name]);
  found.themes = [];
  for (let turn = 0; turn < 3; turn += 1) {
    found.themes.push([page.getElementById("theme").textContent, ...colours()]);
    page.getElementById("theme").click();
  }
  await wait(50);
  const root = page.documentElement;
  found.overflow = root.scrollWidth - root.clientWidth;
  found.errors = errors;
  return found;
}
(async () => {
  const results = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const errors = [];
    await new Promise((done) => {
      frame.addEventListener("load", done);
      frame.srcdoc = frame.dataset.page;
    });
    frame.contentWindow.addEventListener("error", (event) => errors.push(event.message));
    await wait(100);
    results[frame.id] = await probe(frame, errors).catch((error) => ({ failure: String(error.stack) }));
  }
  document.getElementById("results").textContent = JSON.stringify(results);
})();
