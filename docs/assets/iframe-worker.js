// Browsers start no worker from a file. Where the site is opened from disk, the search runs in a hidden frame instead;
// the theme looks for the name IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inner = this.frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source !== inner) return;
      event.stopImmediatePropagation();
      this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    inner.document.open(); // forgets all listeners of the frame
    this.ready = new Promise((resolve) => inner.addEventListener("load", resolve));
    inner.document.write(`<!doctype html><html lang="en"><body><script>
      postMessage = (data) => parent.dispatchEvent(new MessageEvent("message", { data, source: window }));
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        document.body.appendChild(script);
      })), Promise.resolve());
    </script><script src="${url}"></script></body></html>`);
    inner.document.close();
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
