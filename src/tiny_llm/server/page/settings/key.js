// The key of the server: asked for when it is needed, and kept in the browser only if the reader wants that.
import { storageOf } from "../conversations/storage.js";
import { Store } from "../conversations/store.js";
import { byId } from "../dom.js";

const NAME = "tiny-llm.key";
const kept = new Store(storageOf("localStorage"));
let key = kept.read(NAME) ?? "";
let asking = null; // one dialog for all requests that wait for a key

export function authorization() {
  return key ? { authorization: `Bearer ${key}` } : {};
}

// True when another key than that of the header `refused` is there; false if the reader gave none.
export function askForKey(refused) {
  if (authorization().authorization !== refused) return Promise.resolve(true);
  asking ??= ask(Boolean(refused)).finally(() => (asking = null));
  return asking;
}

function ask(wasWrong) {
  const [dialog, form, input, keep] = ["key-dialog", "key-form", "key", "keep-key"].map(byId);
  byId("key-problem").hidden = !wasWrong;
  input.value = "";
  keep.checked = kept.read(NAME) !== null;
  dialog.returnValue = "";
  dialog.showModal();
  const read = (event) => {
    event.preventDefault(); // the page's policy allows no form to be sent
    const given = input.value.trim();
    if (!/^[!-~]+$/.test(given)) {
      byId("key-problem").hidden = false;
      return;
    }
    key = given;
    if (keep.checked) kept.write(NAME, key);
    else kept.remove(NAME);
    dialog.close("given");
  };
  const cancel = () => dialog.close();
  form.addEventListener("submit", read);
  byId("cancel-key").addEventListener("click", cancel);
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        form.removeEventListener("submit", read);
        byId("cancel-key").removeEventListener("click", cancel);
        resolve(dialog.returnValue === "given");
      },
      { once: true },
    );
  });
}
