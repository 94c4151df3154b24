// Follows a growing answer, until the reader scrolls up; goes on when the reader is at the end again.
const AT_END = 8; // pixels

export class Follower {
  // `button` brings the reader to the end.
  constructor(scroller, button) {
    Object.assign(this, { scroller, button });
    this.follows = true;
    this.last = 0;
    scroller.addEventListener("scroll", () => this.note(), { passive: true });
    button.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.grown()).observe(scroller);
  }

  note() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const distance = scrollHeight - clientHeight - scrollTop;
    if (distance <= AT_END) this.follows = true;
    else if (scrollTop < this.last) this.follows = false; // only the reader scrolls up
    this.last = scrollTop;
    this.button.hidden = this.follows;
  }

  // The content has changed.
  grown() {
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.last = scrollTop;
    this.button.hidden = this.follows || scrollHeight - clientHeight - scrollTop <= AT_END;
  }

  toEnd() {
    this.follows = true;
    this.grown();
  }
}
