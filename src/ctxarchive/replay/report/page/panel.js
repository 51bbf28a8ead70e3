// The panel beside the report: what a pointer returns, or the hits of a search.

const HITS_AT_ONCE = 60;
const LAYERS = ["constraint", "finding", "narrative"];

class Panel {
  constructor(store) {
    this.node = byId("panel");
    this.store = store;
    this.layer = "";
    this.query = "";
    this.opener = null;
    this.shown = null;
  }

  use(store) {
    this.store = store;
    this.close();
  }

  get isOpen() { return !this.node.hidden; }

  close() {
    if (!this.isOpen) return;
    this.node.hidden = true;
    byId("layout").classList.remove("with-panel");
    this.mark(null);
    this.shown = null;
    if (this.opener && this.opener.isConnected) this.opener.focus();
    this.opener = null;
  }

  show(head, body) {
    if (!this.isOpen) {
      this.node.hidden = false;
      byId("layout").classList.add("with-panel");
    }
    this.node.replaceChildren(head, body);
    body.scrollTop = 0;
  }

  head(title, { back = false, tools = [], facts = null, call = null }) {
    this.title = el("h2", { class: "panel-title", tabindex: -1 }, title);
    return el("div", { class: "panel-head" },
      el("div", { class: "panel-top" },
        back ? button({ class: "icon", "aria-label": "Back to the results", title: "Back to the results", onclick: () => this.results(true) }, "←") : null,
        this.title,
        button({ class: "icon", "aria-label": "Close the panel", title: "Close (Esc)", onclick: () => this.close() }, "×")),
      facts, call ? el("div", { class: "call mono" }, call) : null,
      tools.length ? el("div", { class: "panel-tools" }, tools) : null);
  }

  // What a pointer returns, beside the checkpoint that printed it.
  open(pointer, opener) {
    const found = this.store.fetch(pointer);
    this.opener = opener;
    this.mark(pointer.call);
    this.shown = "pointer";
    const one = found.length === 1 ? found[0] : null;
    const partial = one && (one.start > 0 || one.end < one.record.chars);
    const characters = found.reduce((sum, piece) => sum + piece.end - piece.start, 0);
    const title = one ? `${said(one.record)}, seq ${number(one.record.seq)}` : counted(found.length, "message");
    const body = el("div", { class: "panel-body", tabindex: 0, role: "region", "aria-label": "Archived text" });
    const exact = () => body.replaceChildren(...(found.length ? found.flatMap((piece) => [one ? null : recordHead(piece.record), el("pre", { class: "exact" }, piece.text || pictures(piece.record))]).filter(Boolean) : [el("p", { class: "empty" }, "Nothing in this file answers this call.")]));
    const around = () => {
      body.replaceChildren(el("pre", { class: "exact" }, slice(one.record.text, 0, one.start), el("span", { class: "elided" }, one.text), slice(one.record.text, one.end, one.record.chars)));
      reveal(body, body.querySelector(".elided"), 0.15);
    };
    const tools = [];
    if (partial) tools.push(choice("What is shown", [["Left out", exact], ["Whole message", around]]));
    if (found.length) tools.push(button({ class: "plain", onclick: (event) => copy(found.map((piece) => piece.text).join("\n"), event.currentTarget) }, "Copy"));
    tools.push(...this.neighbours(pointer));
    const facts = el("p", { class: "panel-facts" }, one ? [layerName(one.record), ` · ${counted(characters, "character")}${partial ? ` of ${number(one.record.chars)}` : ""}${one.record.time === null ? "" : ` · ${when(one.record.time)} UTC`}`] : `${counted(characters, "character")} in all`);
    this.show(this.head(title, { facts, call: pointer.call, tools }), body);
    exact();
    this.title.focus({ preventScroll: true });
    tell(`${title}, ${counted(characters, "character")}`);
  }

  // The pointers before and behind this one in the checkpoint.
  neighbours(pointer) {
    const all = [...document.querySelectorAll("#compaction [data-call]")];
    const place = all.findIndex((node) => node.dataset.call === pointer.call);
    if (place < 0 || all.length < 2) return [];
    const go = (to, which) => button({ class: "plain", disabled: !all[to], "aria-label": `${which} pointer`, title: `${which} pointer`, onclick: () => {
      all[to].scrollIntoView({ block: "center" });
      all[to].click();
      this.node.querySelector(`[aria-label="${which} pointer"]`)?.focus();
    } }, which === "Previous" ? "↑" : "↓");
    return [go(place - 1, "Previous"), go(place + 1, "Next"), el("span", { class: "panel-facts" }, `${number(place + 1)} of ${number(all.length)}`)];
  }

  mark(call) {
    document.querySelectorAll("[data-call].is-open").forEach((node) => node.classList.remove("is-open"));
    if (call) document.querySelectorAll("[data-call]").forEach((node) => node.classList.toggle("is-open", node.dataset.call === call));
  }

  search(query, opener) {
    if (opener) this.opener = opener;
    this.query = query;
    this.results(false);
  }

  results(back) {
    this.mark(null);
    this.shown = "results";
    const answer = this.store.search(this.query, this.layer);
    const { hits, terms, tier } = answer;
    const title = terms.length ? `${counted(hits.length, "record")} ${hits.length === 1 ? "matches" : "match"}` : `All ${counted(hits.length, "record")}`;
    const body = el("div", { class: "panel-body" });
    const list = el("ul", { class: "hits", "aria-label": "Records" });
    const more = button({ class: "plain", hidden: true }, "Show more");
    let shown = 0;
    const grow = () => {
      const added = hits.slice(shown, shown + HITS_AT_ONCE).map((hit) => el("li", null, this.hit(hit, terms)));
      list.append(...added);
      shown += added.length;
      more.hidden = shown >= hits.length;
      return added[0];
    };
    more.addEventListener("click", () => grow()?.firstChild.focus());
    grow();
    body.append(hits.length ? list : el("p", { class: "empty" }, "No record holds any of these words. Try a shorter part of a name or a path."), more);
    const filters = choice("Layer", [["All", ""], ...LAYERS.map((layer) => [layer, layer])].map(([name, layer]) => [name, () => { this.layer = layer; this.results(false); this.node.querySelector('.panel-tools [aria-pressed="true"]').focus(); }]), this.layer || "All");
    const facts = el("p", { class: "panel-facts" }, terms.length ? `“${this.query.trim()}”${hits.length && terms.length > 1 ? `, by ${tier}` : ""}` : "Oldest first. Type to search them.");
    this.show(this.head(title, { facts, tools: [filters] }), body);
    roving(list, ".hit");
    list.addEventListener("keydown", (event) => {
      if (event.key === "ArrowUp" && event.target === list.querySelector(".hit")) { event.preventDefault(); byId("query").focus(); }
    });
    if (back) (this.node.querySelector(`[data-seq="${this.lastHit}"]`) || this.title).focus();
    tell(title);
  }

  hit({ record, at }, terms) {
    return button({ class: "hit", "data-seq": record.seq, onclick: () => this.record(record, terms) },
      el("span", { class: "hit-facts" }, layerName(record), el("span", null, said(record)), el("span", { class: "where" }, `seq ${number(record.seq)} · ${rough(record.chars)}`)),
      el("span", { class: "hit-text" }, record.text ? snippet(record.text, at, terms) : pictures(record)));
  }

  record(record, terms) {
    this.lastHit = record.seq;
    this.shown = "record";
    const body = el("div", { class: "panel-body", tabindex: 0, role: "region", "aria-label": "Archived text" },
      el("pre", { class: "exact" }, record.text ? marked(record.text, terms) : pictures(record)));
    const facts = el("p", { class: "panel-facts" }, layerName(record), ` · ${counted(record.chars, "character")}${record.time === null ? "" : ` · ${when(record.time)} UTC`}`);
    const call = `ctx_search(source: "${record.source}", seq: ${record.seq})`;
    this.show(this.head(`${said(record)}, seq ${number(record.seq)}`, { back: true, facts, call, tools: [button({ class: "plain", onclick: (event) => copy(record.text, event.currentTarget) }, "Copy")] }), body);
    reveal(body, body.querySelector("mark"), 0.4);
    this.title.focus({ preventScroll: true });
  }
}

// Scrolls the panel's own text only: the checkpoint beside it stays where it is.
function reveal(body, node, share) {
  if (!node) return;
  const below = node.getBoundingClientRect().top - body.getBoundingClientRect().top;
  body.scrollTop += below - body.clientHeight * share;
}

function choice(name, options, chosen) {
  const group = el("div", { class: "choice", role: "group", "aria-label": name });
  for (const [told, act] of options) {
    group.append(button({ "aria-pressed": told === (chosen || options[0][0]) ? "true" : "false", onclick: (event) => {
      group.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", one === event.currentTarget ? "true" : "false"));
      act();
    } }, told));
  }
  return group;
}

const ROLES = { user: "User", assistant: "Assistant", tool: "Tool" };
const said = (record) => {
  if (record.kind === "checkpoint") return "Checkpoint";
  if (record.kind === "injected") return "Host";
  return record.role === "tool" && record.name ? record.name : ROLES[record.role] || record.role;
};
const layerName = (record) => el("span", { class: `layer ${record.layer}` }, record.layer);
const pictures = (record) => (record.images.length ? `[${record.images.join("; ")}]` : "[no text]");
const recordHead = (record) => el("p", { class: "record-head" }, layerName(record), ` · ${said(record)}, seq ${number(record.seq)} · ${counted(record.chars, "character")}`);
