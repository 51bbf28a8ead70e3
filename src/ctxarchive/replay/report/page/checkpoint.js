// One compaction: what became of the span, and the checkpoint with its pointers.

const KINDS = { user: "User", assistant: "Assistant", calls: "Calls and reasoning", tool: "Tool results", host: "Host and checkpoints" };
const FATES = { whole: "word for word", clipped: "in part", archived: "archive only" };
const ANCHORS_AT_FIRST = 60;

function compaction(made, index, many, { open, ask }) {
  const facts = [
    made.trigger && { pressure: "on pressure", recorded: "where the log’s harness compacted", end: "at the end of the log" }[made.trigger],
    made.summarizer && `${made.summarizer} summary`,
    `seq ${number(made.firstSeq)} to ${number(made.lastSeq)}`,
    made.time === null ? null : `${when(made.time)} UTC`,
  ];
  return el("div", { id: "compaction", ...(many ? { role: "tabpanel", "aria-labelledby": `tab-${index}` } : {}) },
    el("p", { class: "lead" },
      el("strong", null, counted(made.messages, "message")), ` of ${number(made.shadowedTokens)} tokens left the context. A checkpoint of `,
      el("strong", null, `${number(made.checkpointTokens)} tokens`), ` stands in their place: the context went from ${number(made.before)} to ${number(made.after)}.`),
    el("p", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", null, fact))),
    timings(made.seconds),
    fates(made),
    sheet(made, open, ask));
}

function timings(seconds) {
  const names = { file: "filing", summarize: "summary", build: "additions", total: "in all" };
  const shown = Object.entries(names).filter(([name]) => seconds[name]);
  if (!shown.length) return null;
  return el("p", { class: "facts" }, shown.map(([name, told]) => el("span", null, `${told} ${took(seconds[name])}`)));
}

function fates(made) {
  if (!made.shares.length) return null;
  const sums = { whole: 0, clipped: 0, archived: 0 };
  for (const part of made.shares) {
    if (part.fate !== "archived") sums[part.fate] += part.shownTokens;
    sums.archived += part.leftTokens;
  }
  const all = sums.whole + sums.clipped + sums.archived;
  const names = { whole: "shown word for word", clipped: "shown of messages cut short", archived: "in the archive only" };
  const strip = el("div", { class: "strip", "aria-hidden": "true" });
  for (const [fate, tokens] of Object.entries(sums)) {
    if (!tokens) continue;
    const piece = el("span", { class: `is-${fate}`, title: `${names[fate]}: ${number(tokens)} tokens` });
    piece.style.flexGrow = tokens;
    strip.append(piece);
  }
  return el("div", { class: "fates" }, strip,
    el("p", { class: "keys" }, Object.entries(sums).map(([fate, tokens]) => el("span", null, el("i", { class: `is-${fate}` }), el("b", null, share(tokens, all)), ` ${names[fate]}`))),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What became of the span" }, fateTable(made)));
}

function fateTable(made) {
  const kinds = Object.keys(KINDS).filter((kind) => made.shares.some((part) => part.kind === kind));
  const sum = (chosen, field) => chosen.reduce((total, part) => total + part[field], 0);
  const cells = (chosen) => Object.keys(FATES).flatMap((fate) => {
    const parts = chosen.filter((part) => part.fate === fate);
    const side = fate === "archived" ? "left" : "shown";
    const messages = sum(parts, "messages");
    const values = [messages, sum(parts, `${side}Chars`), sum(parts, `${side}Tokens`)];
    if (fate === "clipped") values.push(sum(parts, "leftChars"));
    return values.map((value, place) => el("td", { class: `number${place ? "" : " group"}${value ? "" : " none"}` }, value ? number(value) : "–"));
  });
  return el("table", null,
    el("caption", { class: "visually-hidden" }, "What became of the messages of the span, by kind"),
    el("thead", null,
      el("tr", null, el("td"),
        el("th", { colspan: 3, scope: "colgroup", class: "group" }, "Shown word for word"),
        el("th", { colspan: 4, scope: "colgroup", class: "group" }, "Shown in part"),
        el("th", { colspan: 3, scope: "colgroup", class: "group" }, "In the archive only")),
      el("tr", null, el("th", { scope: "col" }, "Kind"),
        ["messages", "characters", "tokens", "messages", "characters", "tokens", "left out", "messages", "characters", "tokens"]
          .map((name, place) => el("th", { scope: "col", class: `number${[0, 3, 7].includes(place) ? " group" : ""}` }, name)))),
    el("tbody", null, kinds.map((kind) => el("tr", null, el("th", { scope: "row" }, KINDS[kind]), cells(made.shares.filter((part) => part.kind === kind))))),
    el("tfoot", null, el("tr", null, el("th", { scope: "row" }, "All"), cells(made.shares))));
}

function sheet(made, open, ask) {
  const body = el("div", { class: "sheet-body" });
  const exact = () => el("pre", { class: "exact", tabindex: 0, "aria-label": "The checkpoint as the model sees it" }, made.checkpoint.text);
  const reading = readingView(made, open, ask);
  const choose = (which) => {
    body.replaceChildren(...(which === "reading" ? reading : [exact()]));
    choice.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", one.dataset.view === which ? "true" : "false"));
  };
  const choice = el("div", { class: "choice", role: "group", "aria-label": "How the checkpoint is shown" },
    button({ "data-view": "reading", onclick: () => choose("reading") }, "For reading"),
    button({ "data-view": "exact", onclick: () => choose("exact") }, "As the model sees it"));
  choose("reading");
  return el("section", { class: "sheet", "aria-label": "Checkpoint" },
    el("div", { class: "sheet-head" }, el("h3", null, "The checkpoint"), choice,
      button({ class: "plain", onclick: (event) => copy(made.checkpoint.text, event.currentTarget) }, "Copy")),
    body);
}

function readingView(made, open, ask) {
  const { summary, entries, index, anchors, unread } = made.checkpoint;
  const standing = entries.filter((entry) => entry.section === "standing");
  const transcript = entries.filter((entry) => entry.section !== "standing");
  return [
    part("Summary", `${number(codePoints(summary))} characters`, el("div", { class: "prose" }, prose(summary))),
    standing.length ? part("What the user said before this span", counted(standing.length, "entry", "entries"), el("div", { class: "entries" }, standing.map((entry) => entryView(entry, open)))) : null,
    transcript.length ? part("Transcript", counted(transcript.length, "entry", "entries"), el("div", { class: "entries" }, transcript.map((entry) => entryView(entry, open)))) : null,
    anchors.length ? part("Anchors", "tokens of what was left out; each is a search", anchorView(anchors, ask)) : null,
    index.length ? part("Archive index", "", el("div", { class: "prose" }, prose(index.filter((line) => line).join("\n")))) : null,
    unread ? part("Additions", "", el("pre", { class: "exact" }, unread)) : null,
  ].filter(Boolean);
}

const part = (title, told, ...children) => el("section", { class: "part" }, el("h4", null, title, told ? el("span", null, told) : null), ...children);

function entryView(entry, open) {
  const pointers = entry.parts.filter((piece) => typeof piece !== "string");
  if (entry.role === "tool") {
    return pointers.map((pointer) => button({ class: "line", "data-call": pointer.call, onclick: (event) => open(pointer, event.currentTarget) },
      el("span", { class: "seq" }, number(entry.seq)), " ",
      el("span", { class: "did" }, el("b", null, entry.name), " ", el("code", null, entry.did)), " ",
      el("span", { class: "size" }, `${rough(entry.chars)} chars`)));
  }
  if (entry.role === "run") return pointers.map((pointer) => gap(pointer, `${counted(entry.chars, "older entry", "older entries")} left out, from seq ${number(entry.seq)}`, open));
  return el("div", { class: `entry is-${entry.role}` },
    el("div", { class: "who" }, el("b", null, entry.role === "user" ? "User" : "Assistant"), number(entry.seq)),
    el("div", null, entry.parts.map((piece) => (typeof piece === "string"
      ? el("div", { class: "said" }, piece.replace(/^\s*\n|\s+$/g, ""))
      : gap(piece, `${number(piece.length)} of ${number(entry.chars)} characters left out`, open)))));
}

function gap(pointer, told, open) {
  return button({ class: "gap", "data-call": pointer.call, onclick: (event) => open(pointer, event.currentTarget) }, told);
}

function anchorView(anchors, ask) {
  return el("div", { class: "anchors" }, anchors.flatMap(([kind, tokens]) => {
    const name = kind === "urls" ? "URLs" : kind[0].toUpperCase() + kind.slice(1);
    const chip = (token) => button({ class: "anchor", onclick: (event) => ask(token, event.currentTarget) }, token);
    const chips = el("div", { class: "chips", role: "group", "aria-label": name }, tokens.slice(0, ANCHORS_AT_FIRST).map(chip));
    const rest = tokens.slice(ANCHORS_AT_FIRST);
    if (rest.length) {
      chips.append(button({ class: "more", onclick: (event) => {
        const made = rest.map(chip);
        event.currentTarget.replaceWith(...made);
        made[0].focus();
      } }, `${number(rest.length)} more`));
    }
    roving(chips, "button", { across: true });
    return [el("h5", null, name), chips];
  }));
}

// Just enough of Markdown to read a summary: headings, lists, fences, code. The exact text is one click away.
function prose(text) {
  const found = [];
  let list = null, fence = null;
  for (const line of text.split("\n")) {
    if (fence) {
      if (line.startsWith("```")) fence = null;
      else fence.append(`${line}\n`);
      continue;
    }
    const item = /^\s*[-*] (.*)$/.exec(line);
    if (!item) list = null;
    if (item) {
      if (!list) found.push((list = el("ul")));
      list.append(el("li", null, inline(item[1])));
    } else if (line.startsWith("```")) found.push((fence = el("pre")));
    else if (/^#{1,6} /.test(line)) found.push(el("h5", null, line.replace(/^#+ /, "")));
    else if (line.trim()) found.push(el("p", null, inline(line)));
  }
  return found;
}

const inline = (line) => line.split(/(`[^`]+`)/).map((piece) => (piece.length > 2 && piece.startsWith("`") && piece.endsWith("`") ? el("code", null, piece.slice(1, -1)) : piece));
