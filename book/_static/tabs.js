// The one switch of the book: code in PyTorch, in JAX, or side by side.
//
// The choice is an attribute of the root element, data-code, from which custom.css decides what is
// shown. This script runs in the head, so the attribute is there before anything is drawn, and
// nothing jumps. The switch in the header and the tabs on the page both set it. It is kept where
// sphinx-design keeps its choice of tabs, and an address can carry it: ?code=jax, ?code=both.

(() => {
  const KEY = "sphinx-design-tab-id-code"; // "code" is the sync group of the tabs
  const CHOICES = ["pytorch", "jax", "both"];
  const root = document.documentElement;

  // A browser may forbid to store anything; then the choice holds for this page.
  const stored = () => {
    try { return localStorage.getItem(KEY); } catch { return null; }
  };
  const store = (choice) => {
    try { localStorage.setItem(KEY, choice); } catch { /* see above */ }
  };

  const asked = new URL(location).searchParams.get("code");
  const first = [asked, stored()].find((choice) => CHOICES.includes(choice)) ?? CHOICES[0];
  root.dataset.code = first;
  if (first === asked) store(first);

  const labels = () => document.querySelectorAll("label[data-sync-group='code']");

  // Let the controls of the page agree with the choice.
  const show = (choice) => {
    root.dataset.code = choice;
    for (const button of document.querySelectorAll(".code-switch > button")) {
      button.setAttribute("aria-pressed", button.value === choice);
    }
    for (const label of labels()) {
      const input = label.previousElementSibling;
      if (choice !== "both") input.checked = label.dataset.syncId === choice;
      input.disabled = choice === "both"; // nothing to choose: the labels are headings now
    }
    window.dispatchEvent(new Event("resize")); // see the end of this file
  };

  // Blocks above the reader's place change their height: scroll by the difference, so that the tab
  // stays where it was clicked, or the text where it was read.
  const choose = (choice, place) => {
    root.style.overflowAnchor = "none"; // the browser would do the same, from another block
    const top = place?.getBoundingClientRect().top;
    show(choice);
    store(choice);
    if (asked) {
      const address = new URL(location);
      address.searchParams.set("code", choice);
      history.replaceState(history.state, "", address);
    }
    if (place) {
      window.scrollBy({ top: place.getBoundingClientRect().top - top, behavior: "instant" });
    }
    requestAnimationFrame(() => root.style.removeProperty("overflow-anchor"));
  };

  // Where the reader is: the first block that begins in the upper half of what can be seen, else the
  // block that fills it.
  const readAt = () => {
    const header = document.querySelector(".bd-header-article")?.getBoundingClientRect().bottom ?? 0;
    const blocks = [...document.querySelectorAll(".bd-article section > :not(section)")];
    const top = (block) => block.getBoundingClientRect().top;
    return blocks.find((block) => top(block) >= header && top(block) < innerHeight / 2)
      ?? blocks.findLast((block) => top(block) < header);
  };

  document.addEventListener("click", ({ target }) => {
    if (target.matches(".code-switch > button")) choose(target.value, readAt());
  });

  document.addEventListener("change", ({ target }) => {
    const label = target.nextElementSibling;
    if (label?.dataset.syncGroup === "code") choose(label.dataset.syncId, label);
  }, true); // on its way down, before sphinx-design switches the other tab-sets

  document.addEventListener("DOMContentLoaded", () => {
    show(root.dataset.code);
    store(root.dataset.code); // sphinx-design keeps whatever the address says
  });
  window.addEventListener("storage", ({ key, newValue }) => { // the book in another window
    if (key === KEY && CHOICES.includes(newValue)) show(newValue);
  });

  // The theme lets the keyboard reach a block of code that is too wide, so that it can be scrolled.
  // It looks for such blocks when the window is resized; blocks that a switch or a closed box has
  // just uncovered would be missed, so a resize is announced.
  const announceResize = () => window.dispatchEvent(new Event("resize"));
  document.addEventListener("toggle", announceResize, true); // details; it does not bubble
  window.addEventListener("load", announceResize);
})();
