// Puts the page together: the session chosen, its views, the keys and the colours.

const state = { report: null, session: null, panel: null, timeline: null };

function overview(session) {
  const { points, compactions, records } = session;
  const times = points.time.filter((time) => time !== null);
  const span = times.length > 1 ? Math.max(...times) - Math.min(...times) : 0;
  const last = points.tokens.length - 1;
  const heading = session.title || (state.report.origin === "log" ? state.report.name : session.id);
  const facts = [
    session.format || "from an archive", session.model,
    times.length ? `${when(Math.min(...times))} UTC` : null, span ? lasted(span) : null,
    heading === session.id ? null : session.id,
  ];
  const pointers = compactions.reduce((sum, made) => sum + made.checkpoint.entries.reduce((inner, entry) => inner + entry.parts.filter((piece) => typeof piece !== "string").length, 0), 0);
  const chars = records.reduce((sum, record) => sum + record.chars, 0);
  const figures = [
    [session.format ? "Context at the end" : "Context, as far as archived", `${number(points.tokens[last] || 0)}`, compactions.length ? `tokens; ${number(points.uncompacted[last])} without compaction` : "tokens"],
    ["Compactions", number(compactions.length), compactions.length ? `freed ${number(compactions.reduce((sum, made) => sum + made.before - made.after, 0))} tokens` : "nothing left the context"],
    ["Archived", number(records.length), `records, ${rough(chars)} characters`],
    ["Pointers", number(pointers), "to what checkpoints leave out"],
  ];
  return el("section", { "aria-label": "Session" },
    el("h1", null, heading),
    el("p", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", null, fact))),
    el("dl", { class: "figures" }, figures.map(([name, value, told]) => el("div", null, el("dt", null, name), el("dd", null, value, el("small", null, told))))),
    session.warnings.length ? el("ul", { class: "notices", "aria-label": "Notes" }, session.warnings.map((warning) => el("li", { class: "notice" }, warning))) : null);
}

function compactions(session) {
  const many = session.compactions.length > 1;
  const holder = el("div");
  const open = (pointer, opener) => state.panel.open(pointer, opener);
  const ask = (token, opener) => { byId("query").value = token; state.panel.search(/\s/.test(token) ? `"${token}"` : token, opener); };
  const tabs = many ? el("div", { class: "tabs", role: "tablist", "aria-label": "Compactions" }) : null;
  const choose = (index) => {
    state.panel.close();
    holder.replaceChildren(compaction(session.compactions[index], index, many, { open, ask }));
    state.timeline?.select(index);
    tabs?.querySelectorAll("button").forEach((tab, place) => {
      tab.setAttribute("aria-selected", place === index ? "true" : "false");
      tab.tabIndex = place === index ? 0 : -1;
    });
  };
  session.compactions.forEach((made, index) => {
    tabs?.append(button({ role: "tab", id: `tab-${index}`, "aria-controls": "compaction", onclick: () => choose(index) }, number(index + 1), el("small", null, `${rough(made.before)} → ${rough(made.after)}`)));
  });
  const section = el("section", { class: "block", id: "compactions" }, el("h2", { tabindex: -1 }, many ? "Compactions" : "The compaction"), tabs, holder);
  choose(0);
  if (tabs) roving(tabs, "button", { across: true });
  section.choose = (index) => {
    choose(index);
    section.scrollIntoView({ block: "start" });
    (tabs ? tabs.children[index] : section.querySelector("h2")).focus({ preventScroll: true });
  };
  return section;
}

function show(session) {
  state.session = session;
  const store = new Store(session);
  if (state.panel) state.panel.use(store);
  else state.panel = new Panel(store);
  byId("query").value = "";
  const main = byId("main");
  main.replaceChildren(overview(session));
  state.timeline = null;
  let list = null;
  if (session.points.seq.length) {
    state.timeline = timeline(session, { onCompaction: (index) => list.choose(index) });
    main.append(el("section", { class: "block" }, el("h2", null, "Context over the session"),
      el("p", { class: "soft" }, session.format ? "Tokens of the next request after each event. Arrow keys step through the events." : "As far as the archive tells: what left the context, and the checkpoints among it."),
      state.timeline));
  }
  if (session.compactions.length) main.append((list = compactions(session)));
  else main.append(el("section", { class: "block" }, el("h2", null, "No compaction"), el("p", { class: "soft" }, state.report.origin === "log" ? "This session stayed below its threshold. Report it again with a smaller --window, or with --at end." : "The archive holds no checkpoint of this session: the newest one is filed when it leaves the context in its turn.")));
  main.append(el("p", { class: "foot" }, el("span", null, `${state.report.name}`), el("span", null, `ctxarchive ${state.report.version}`), el("span", null, "Everything shown is in this file; nothing is fetched.")));
}

function chooser() {
  const { sessions, name } = state.report;
  if (sessions.length < 2) return [name];
  const menu = el("select", { id: "session", "aria-label": "Session", onchange: () => show(sessions[menu.selectedIndex]) },
    sessions.map((session) => el("option", null, `${session.title ? `${session.title} · ` : ""}${session.id} (${counted(session.records.length, "record")})`)));
  return [el("span", { class: "select" }, menu)];
}

function colours() {
  const root = document.documentElement;
  const toggle = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tellIt = () => toggle.setAttribute("aria-pressed", isDark() ? "true" : "false");
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tellIt();
  });
  system.addEventListener("change", tellIt);
  tellIt();
}

function keys() {
  const query = byId("query");
  let waiting = 0;
  const search = () => state.panel.search(query.value, query);
  query.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 60);
  });
  byId("finder").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    search();
  });
  query.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    clearTimeout(waiting);
    if (state.panel.shown !== "results" || state.panel.query !== query.value) search();
    byId("panel").querySelector(".hit")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.panel.isOpen) {
      event.preventDefault();
      state.panel.close();
    } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      query.focus();
      query.select();
    }
  });
}

async function begin() {
  state.report = await unpack();
  byId("bar-session").replaceChildren(...chooser());
  show(state.report.sessions[0]);
  colours();
  keys();
  document.documentElement.dataset.ready = "true";
}

begin().catch((error) => {
  byId("main").replaceChildren(el("p", { class: "notice", role: "alert" }, `This report cannot be shown: ${error.message}. It needs a browser of 2024 or later.`));
});
