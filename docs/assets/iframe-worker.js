// Search on pages that are opened from the disk. Browsers refuse to start workers from file:// addresses, so the
// worker's script runs in a hidden frame instead, with the same messages. On a server, nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      this.#frame.srcdoc = `<script>
        window.postMessage = message => parent.dispatchEvent(new CustomEvent("frame-worker", { detail: message }));
        window.importScripts = (...urls) => Promise.all(urls.map(url => new Promise((done, failed) => {
          document.head.append(Object.assign(document.createElement("script"), { src: url, onload: done, onerror: failed }));
        })));
      <\/script><script src="${url}"><\/script>`;
      this.#ready = new Promise(done => this.#frame.addEventListener("load", done));
      window.addEventListener("frame-worker", ({ detail }) => {
        const event = new MessageEvent("message", { data: detail });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      });
      document.body.append(this.#frame);
    }

    postMessage(message) {
      this.#ready.then(() => this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
