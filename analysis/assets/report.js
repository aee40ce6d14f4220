"use strict";
(() => {
  const root = document.documentElement;

  // Light or dark: the system's choice until the button is pressed.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  document.querySelectorAll("button[data-theme-toggle]").forEach((button) => {
    const tell = () => button.setAttribute("aria-pressed", String(isDark()));
    tell();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      tell();
      redraw();
    });
    system.addEventListener("change", () => {
      tell();
      redraw();
    });
  });

  document.querySelectorAll("button[data-print]").forEach((button) => {
    button.addEventListener("click", () => print());
  });

  // A page opened from a disk may be denied the clipboard; then the text is selected instead.
  document.querySelectorAll("button[data-copy]").forEach((button) => {
    const words = button.textContent;
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      let done = true;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        done = document.execCommand("copy");
      }
      button.textContent = done ? button.dataset.done : button.dataset.failed;
      setTimeout(() => { button.textContent = words; }, 2500);
    });
  });

  const PAPER = { width: 690, share_of_height: 0.72 };
  const slots = typeof Plotly === "undefined" ? [] : [...document.querySelectorAll(".plot[data-figure]")];
  const drawn = new Set();
  const sources = new Map();
  let onPaper = false;
  const options = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  // Figures name CSS variables instead of colours. A browser says what a variable means in the theme of the
  // moment only of a property that uses it.
  function meaningOf() {
    const probe = document.body.appendChild(document.createElement("span"));
    const known = new Map();
    const style = getComputedStyle(root);
    return {
      of(name) {
        if (!known.has(name)) {
          const raw = style.getPropertyValue(name).trim();
          probe.style.color = "";
          probe.style.color = `var(${name})`;
          known.set(name, CSS.supports("color", raw) ? getComputedStyle(probe).color : raw);
        }
        return known.get(name);
      },
      done: () => probe.remove(),
    };
  }

  function resolved(value, meaning) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? meaning.of(name[1]) : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, meaning));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, meaning)]));
    }
    return value;
  }

  function sourceOf(slot) {
    const key = slot.dataset.figure;
    if (!sources.has(key)) sources.set(key, document.getElementById(`figure-${key}`).textContent);
    return JSON.parse(sources.get(key));
  }

  function draw(slot) {
    const meaning = meaningOf();
    const figure = resolved(sourceOf(slot), meaning);
    meaning.done();
    figure.layout.uirevision = "kept";
    if (onPaper) {
      figure.layout.width = PAPER.width;
      figure.layout.height *= PAPER.share_of_height;
    }
    drawn.add(slot);
    return Plotly.react(slot, figure.data, figure.layout, options);
  }

  function redraw() {
    drawn.forEach(draw);
  }

  // Printing may come with a change of theme of its own, so what is drawn depends on this state alone.
  function setPaper(yes) {
    onPaper = yes;
    root.classList.toggle("paper", yes);
    document.querySelectorAll("details").forEach((part) => {
      if (yes && !part.open) part.dataset.closed = "";
      if (yes || "closed" in part.dataset) part.open = yes;
      if (!yes) delete part.dataset.closed;
    });
    slots.filter((slot) => yes || drawn.has(slot)).forEach(draw);
  }
  addEventListener("beforeprint", () => setPaper(true));
  addEventListener("afterprint", () => setPaper(false));

  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      watcher.unobserve(entry.target);
      draw(entry.target);
    }),
    { rootMargin: "400px" },
  );
  slots.forEach((slot) => watcher.observe(slot));

  const slotOf = (button) => slots.find((slot) => slot.dataset.figure === button.dataset.of);

  document.querySelectorAll("button[data-axis]").forEach((button) => {
    button.addEventListener("click", () => {
      const slot = slotOf(button);
      const first = slot.layout[button.dataset.axis];
      const type = first.type === "log" ? "linear" : "log";
      const ticks = type === "log" ? "array" : "auto";
      const changes = {};
      for (const [axis, set] of Object.entries(slot.layout)) {
        if (axis !== button.dataset.axis && set?.matches !== button.dataset.axis.replace("axis", "")) continue;
        Object.assign(changes, {
          [`${axis}.type`]: type, [`${axis}.tickmode`]: ticks, [`${axis}.autorange`]: true,
        });
      }
      Plotly.relayout(slot, changes);
    });
  });

  document.querySelectorAll("button[data-reset]").forEach((button) => {
    button.addEventListener("click", () => {
      const slot = slotOf(button);
      const changes = {};
      for (const [axis, set] of Object.entries(sourceOf(slot).layout)) {
        if (!/^[xy]axis\d*$/.test(axis) || set.fixedrange) continue;
        if (set.range) changes[`${axis}.range`] = set.range;
        else changes[`${axis}.autorange`] = true;
      }
      Plotly.relayout(slot, changes);
    });
  });
})();
