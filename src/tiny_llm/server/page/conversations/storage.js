// The browser's storages, which are missing where cookies are blocked.

export function storageOf(name) {
  try {
    return window[name] ?? closed;
  } catch {
    return closed;
  }
}

const refuse = () => {
  throw new DOMException("the browser keeps nothing for this page", "SecurityError");
};

const closed = { length: 0, key: () => null, getItem: () => null, setItem: refuse, removeItem: () => {} };
