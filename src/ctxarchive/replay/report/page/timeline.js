// The life of a session: tokens in context after each event, thresholds, and every compaction.

function timeline(session, { onCompaction }) {
  const { seq, time, what, tokens, uncompacted } = session.points;
  const count = seq.length;
  const figure = el("figure", { class: "timeline" });
  const readout = el("div", { class: "readout", hidden: true });
  const holder = el("div");
  figure.append(holder, readout, legend(session));
  const at = new Map(seq.map((value, place) => [value, place]));
  let cursor = count - 1;
  let current = 0;

  const limit = Math.max(session.window || 0, ...tokens);
  const top = niceTop(Math.max(limit, Math.min(Math.max(...uncompacted), limit * 1.5)) * 1.04);

  function draw() {
    const width = Math.max(300, holder.clientWidth || 900);
    const narrow = width < 560;
    const box = { left: narrow ? 38 : 46, right: narrow ? 8 : 14, top: 30, bottom: 24, height: narrow ? 230 : 300 };
    const x = (place) => box.left + (place / Math.max(1, count - 1)) * (width - box.left - box.right);
    const y = (value) => box.height - box.bottom - (value / top) * (box.height - box.top - box.bottom);
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${box.height}`, height: box.height, role: "group", "aria-label": "Context size over the session" });

    for (let value = 0; value <= top; value += step(top, narrow ? 3 : 5)) {
      drawing.append(
        svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: y(value), y2: y(value) }),
        svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, rough(value)),
      );
    }
    const marks = narrow ? 2 : 5;
    for (let mark = 0; mark <= marks; mark += 1) {
      const place = Math.round((mark / marks) * (count - 1));
      const anchor = mark === 0 ? "start" : mark === marks ? "end" : "middle";
      drawing.append(svg("text", { x: x(place), y: box.height - 4, "text-anchor": anchor }, axis(place)));
    }
    drawing.append(
      // Far above the window it leaves the picture.
      svg("clipPath", { id: "picture" }, svg("rect", { x: 0, y: box.top - 6, width, height: box.height })),
      svg("path", { class: "ghost", d: path(uncompacted, x, y), "clip-path": "url(#picture)" }),
      svg("path", { class: "area", d: `${path(tokens, x, y)}V${y(0)}H${x(0)}Z` }),
      svg("path", { class: "line", d: path(tokens, x, y) }),
    );
    limits(drawing, session, { x1: box.left, x2: width - box.right, y });
    const pointer = svg("g", { class: "cursor", visibility: "hidden" }, svg("line", { y1: box.top, y2: y(0) }), svg("circle", { r: 4 }));
    const plot = svg("g", {
      class: "plot", tabindex: 0, role: "slider", "aria-label": "Event",
      "aria-valuemin": 1, "aria-valuemax": count, "aria-valuenow": cursor + 1, "aria-valuetext": spoken(cursor),
    }, svg("rect", { class: "frame", x: box.left, y: box.top, width: width - box.left - box.right, height: box.height - box.top - box.bottom }));
    drawing.append(pointer, plot);

    const show = (place) => {
      cursor = Math.max(0, Math.min(count - 1, place));
      const left = x(cursor);
      pointer.setAttribute("visibility", "visible");
      fill(pointer.firstChild, { x1: left, x2: left }, []);
      fill(pointer.lastChild, { cx: left, cy: y(tokens[cursor]) }, []);
      fill(plot, { "aria-valuenow": cursor + 1, "aria-valuetext": spoken(cursor) }, []);
      readout.replaceChildren(...lines(cursor));
      readout.hidden = false;
      const far = left > width / 2;
      readout.style.left = far ? "" : `${left + 14}px`;
      readout.style.right = far ? `${width - left + 14}px` : "";
      readout.style.top = "3.25rem";
    };
    const hide = () => {
      if (document.activeElement === plot) return;
      pointer.setAttribute("visibility", "hidden");
      readout.hidden = true;
    };
    plot.addEventListener("pointermove", (event) => {
      const box2 = drawing.getBoundingClientRect();
      const inside = (event.clientX - box2.left) * (width / box2.width) - box.left;
      show(Math.round((inside / (width - box.left - box.right)) * (count - 1)));
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("focus", () => show(cursor));
    plot.addEventListener("blur", () => { pointer.setAttribute("visibility", "hidden"); readout.hidden = true; });
    plot.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(count / 20));
      const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: far, PageDown: -far, Home: -count, End: count };
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(cursor + moves[event.key]);
    });
    const dense = session.compactions.length * 24 > width;
    session.compactions.forEach((made, index) => {
      const place = at.get(made.checkpointSeq);
      if (place === undefined) return;
      const flag = svg("g", {
        class: "flag", tabindex: 0, role: "button", "aria-current": index === current ? "true" : "false",
        "aria-label": `Compaction ${index + 1}: ${number(made.before)} to ${number(made.after)} tokens`,
        onclick: () => onCompaction(index),
        onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onCompaction(index); } },
      },
      svg("line", { class: "drop", x1: x(place), x2: x(place), y1: 22, y2: y(made.after) }),
      svg("circle", { cx: x(place), cy: 12, r: dense ? 4 : 10 }),
      dense ? null : svg("text", { x: x(place), y: 16 }, index + 1));
      drawing.append(flag);
    });
    holder.replaceChildren(drawing);
  }

  const axis = (place) => (place >= 0 && place < count ? `seq ${number(seq[place])}` : "");
  const spoken = (place) => `seq ${seq[place]}, ${what[place]}, ${number(tokens[place])} tokens${time[place] === null ? "" : `, ${when(time[place])} UTC`}`;
  function lines(place) {
    const grown = place ? tokens[place] - tokens[place - 1] : tokens[place];
    const found = [
      el("div", null, el("strong", null, `${number(tokens[place])} tokens`), el("span", { class: "faint" }, `  ${grown < 0 ? "−" : "+"}${number(Math.abs(grown))}`)),
      el("div", { class: "soft" }, `${what[place]}, seq ${number(seq[place])}`),
    ];
    if (uncompacted[place] !== tokens[place]) found.push(el("div", { class: "faint" }, `${number(uncompacted[place])} without compaction`));
    if (time[place] !== null) found.push(el("div", { class: "faint" }, `${when(time[place])} UTC`));
    return found;
  }

  let drawn = 0;
  new ResizeObserver(() => {
    if (Math.abs(holder.clientWidth - drawn) < 2) return;
    drawn = holder.clientWidth;
    draw();
  }).observe(figure);
  figure.select = (index) => {
    current = index;
    holder.querySelectorAll(".flag").forEach((flag, place) => flag.setAttribute("aria-current", place === index ? "true" : "false"));
  };
  return figure;
}

function path(values, x, y) {
  let found = `M${x(0).toFixed(1)} ${y(values[0]).toFixed(1)}`;
  for (let place = 1; place < values.length; place += 1) found += `H${x(place).toFixed(1)}V${y(values[place]).toFixed(1)}`;
  return found;
}

function limits(drawing, session, { x1, x2, y }) {
  for (const [value, name] of [[session.window, "window"], [session.threshold, "threshold"]]) {
    if (!value) continue;
    drawing.append(
      svg("line", { class: "limit", x1, x2, y1: y(value), y2: y(value) }),
      svg("text", { class: "limit-name", x: x1 + 6, y: y(value) - 5 }, `${name} ${rough(value)}`),
    );
  }
}

function legend(session) {
  return el("figcaption", { class: "legend" },
    el("span", null, "tokens in context"),
    session.compactions.length ? el("span", { class: "is-ghost" }, "without compaction") : null,
    session.threshold ? el("span", { class: "is-limit" }, "window and threshold") : null,
    session.compactions.length ? el("span", { class: "is-drop" }, "compaction") : null);
}

function step(top, wanted) {
  const raw = top / wanted;
  const size = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((times) => times * size).find((value) => value >= raw);
}

const niceTop = (value) => Math.max(value, 10);
