"""Scripts that run inside a page. A page can forge the results, but only its own."""

MAX_LINKS = 5000
MAX_NAMES = 500  # limit of storage keys, and of cookies written by scripts, per frame

# Runs in every frame before the page's own scripts: records which script wrote which cookie, by name.
REMEMBER_WRITERS = """(ours, most) => {
  const writes = [], native = Object.getOwnPropertyDescriptor(Document.prototype, 'cookie');
  const remember = (name) => {
    if (writes.length >= most) return;
    const from = /https?:[/][/][^\\s)]+?(?=:\\d+:\\d+)/.exec(new Error().stack || '');
    writes.push([String(name).trim(), from ? from[0] : location.href]);
  };
  Object.defineProperty(Document.prototype, 'cookie', {
    ...native,
    set(text) { try { remember(String(text).split(/[=;]/)[0]); } catch {} native.set.call(this, text); },
  });
  const store = window.CookieStore && CookieStore.prototype, set = store && store.set;
  if (set) store.set = function (...given) {
    try { remember(typeof given[0] === 'object' ? given[0].name : given[0]); } catch {}
    return set.apply(this, given);
  };
  Object.defineProperty(window, ours, { value: () => writes });
}"""

FRAME = """([ours, most]) => {
  const names = (read) => { try { return Object.keys(read()).slice(0, most); } catch { return []; } };
  return {
    url: location.href,
    origin: location.origin,
    local_storage: names(() => localStorage),
    session_storage: names(() => sessionStorage),
    writes: window[ours] ? window[ours]() : [],
  };
}"""

LINKS = """(most) => Array.from(document.querySelectorAll('a[href], area[href]'), (link) => String(link.href))
  .filter((href) => /^https?:/.test(href)).slice(0, most)"""
