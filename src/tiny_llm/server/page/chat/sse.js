// Reads server-sent events from bytes that may be cut anywhere: inside of a character, a line or an event. Pure.

export class EventReader {
  constructor() {
    this.decoder = new TextDecoder(); // keeps the bytes of a character until all have come
    this.rest = ""; // the line that has not ended
    this.data = []; // the lines of the event that has not ended
  }

  // The data of the events that are complete with these bytes.
  read(bytes) {
    const lines = (this.rest + this.decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?=[^])/);
    this.rest = lines.pop(); // a "\r" at its end may be half of "\r\n"
    const events = [];
    for (const line of lines) {
      if (line === "") this.finish(events);
      else this.take(line);
    }
    return events;
  }

  take(line) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    if (field === "data") this.data.push(colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, ""));
    // Comments, which keep the connection alive, have no field; others than data are not used here.
  }

  finish(events) {
    if (this.data.length > 0) events.push(this.data.join("\n"));
    this.data = [];
  }
}
