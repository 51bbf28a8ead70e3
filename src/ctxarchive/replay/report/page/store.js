// The page's data: what was embedded, what a pointer returns, and the search over the records.

async function unpack() {
  const packed = atob(byId("data").textContent.trim());
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const SURROGATE = /[\ud800-\udfff]/;

// Offsets and lengths of pointers count code points, as everywhere in ctxarchive.
function slice(text, start, end) {
  if (!SURROGATE.test(text)) return text.slice(start, end);
  return Array.from(text).slice(start, end).join("");
}

class Store {
  constructor(session) {
    this.session = session;
    this.records = session.records;
    this.bySeq = new Map(this.records.map((record) => [record.seq, record]));
    this.folded = new Map();
  }

  // What ctx_search would return: [{record, start, end, text}], in code points.
  fetch(pointer) {
    if (pointer.seq !== null) {
      const record = this.bySeq.get(pointer.seq);
      if (!record || !within(record.source, pointer.sources)) return [];
      const start = Math.min(pointer.length === null ? 0 : pointer.offset, record.chars);
      const end = pointer.length === null ? record.chars : Math.min(record.chars, start + pointer.length);
      return [{ record, start, end, text: slice(record.text, start, end) }];
    }
    return this.records
      .filter((record) => record.seq > pointer.after && record.seq < pointer.before
        && within(record.source, pointer.sources)
        && record.kind !== "checkpoint" && (record.text || record.images.length))
      .map((record) => ({ record, start: 0, end: record.chars, text: record.text }));
  }

  fold(record) {
    let text = this.folded.get(record.seq);
    if (text === undefined) this.folded.set(record.seq, (text = fold(record.text)));
    return text;
  }

  // Records that hold every term; where none does, those that hold any, the most terms first.
  search(query, layer) {
    const terms = termsOf(query);
    const scope = layer ? this.records.filter((record) => record.layer === layer) : this.records;
    const shown = scope.filter((record) => record.text || record.images.length);
    if (!terms.length) return { terms, tier: "", hits: shown.map((record) => ({ record, at: 0 })) };
    const hits = [];
    for (const record of shown) {
      const text = this.fold(record);
      let held = 0, worth = 0, at = -1;
      for (const term of terms) {
        const found = text.indexOf(term);
        if (found < 0) continue;
        held += 1;
        at = at < 0 ? found : Math.min(at, found);
        worth += term.length * (isWord(text, found, term) ? 2 : 1) * occurrences(text, term, found);
      }
      if (held) hits.push({ record, at, held, worth: worth / (400 + text.length) });
    }
    const full = hits.filter((hit) => hit.held === terms.length);
    const kept = full.length ? full : hits;
    kept.sort((a, b) => b.held - a.held || later(a) - later(b) || b.worth - a.worth || a.record.seq - b.record.seq);
    return { terms, tier: full.length ? "all words" : "any of the words", hits: kept };
  }
}

const later = (hit) => (hit.record.kind === "checkpoint" ? 1 : 0);
const within = (source, labels) => labels.some((label) => source === label || source.startsWith(`${label}/`));

// Lower case without diacritics, each UTF-16 unit by itself, so that places stay what they were.
function fold(text) {
  return text.replace(/[A-Z]+/g, (run) => run.toLowerCase()).replace(/[\u0080-\uffff]/g, foldOne);
}

const foldedOnes = new Map();
function foldOne(unit) {
  let found = foldedOnes.get(unit);
  if (found === undefined) {
    const plain = unit.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
    foldedOnes.set(unit, (found = plain.length === 1 ? plain : unit));
  }
  return found;
}

function termsOf(query) {
  const found = [];
  for (const match of query.matchAll(/"([^"]+)"|(\S+)/g)) {
    const term = fold(match[1] ?? match[2]).trim();
    if (term && !found.includes(term)) found.push(term);
  }
  return found.slice(0, 16);
}

const WORD = /[\p{L}\p{N}_]/u;
function isWord(text, at, term) {
  return !WORD.test(text[at - 1] || " ") && !WORD.test(text[at + term.length] || " ");
}

function occurrences(text, term, from) {
  let count = 0;
  for (let at = from; at >= 0 && count < 8; at = text.indexOf(term, at + term.length)) count += 1;
  return count;
}

const MOST_MARKS = 2000;

// Nodes of a text with every term marked; the first mark is where to look.
function marked(text, terms) {
  const folded = fold(text);
  const spans = [];
  for (const term of terms) {
    for (let at = folded.indexOf(term); at >= 0 && spans.length < MOST_MARKS; at = folded.indexOf(term, at + term.length)) {
      spans.push([at, at + term.length]);
    }
  }
  spans.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const nodes = [];
  let place = 0;
  for (const [start, end] of spans) {
    if (start < place) continue;
    nodes.push(text.slice(place, start), el("mark", null, text.slice(start, end)));
    place = end;
  }
  nodes.push(text.slice(place));
  return nodes;
}

function snippet(text, at, terms) {
  const start = Math.max(0, at - 60);
  const piece = text.slice(start, start + 280).replace(/\s+/g, " ").trim();
  return [start ? "… " : "", ...marked(piece, terms)];
}
