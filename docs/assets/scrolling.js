// Tables that are wider than the screen scroll: let a keyboard reach them, as the theme's own wrapper does not.
window.addEventListener("load", () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
});
