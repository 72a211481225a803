// Two small courtesies around sphinx-design's tabs.
//
// 1. Choosing a backend switches every tab-set of the page at once. Those above the reader's place
//    then change their height; the page is scrolled by the difference, so that the tab stays where
//    it was clicked.
// 2. The theme lets the keyboard reach a block of code that is too wide, so that it can be scrolled.
//    It looks for such blocks when the window is resized; blocks that a tab or a closed box has just
//    uncovered would be missed, so a resize is announced.

(() => {
  const announceResize = () => window.dispatchEvent(new Event("resize"));
  const isTab = (element) => element.matches?.(".sd-tab-set > input");
  let topBefore = 0;

  // On its way down (capture) the event finds the other tab-sets still as they were.
  document.addEventListener("change", ({ target }) => {
    if (isTab(target)) topBefore = target.nextElementSibling.getBoundingClientRect().top;
  }, true);

  document.addEventListener("change", ({ target }) => {
    if (!isTab(target)) return;
    const moved = target.nextElementSibling.getBoundingClientRect().top - topBefore;
    window.scrollBy({ top: moved, behavior: "instant" });
    announceResize();
  });

  document.addEventListener("toggle", announceResize, true); // details; it does not bubble
  window.addEventListener("load", announceResize); // a stored choice was applied while loading
})();
