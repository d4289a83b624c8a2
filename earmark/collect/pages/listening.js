// What was heard of one sound since this page was loaded: numbers that only grow.

const MOST_PIECES = 200; // as the server takes them
const EDGE_S = 0.25;
const SAME_S = 0.03; // pieces so near are one

export class Listening {
  /** Of a sound that lasts so many seconds. */
  constructor(duration) {
    Object.assign(this, { duration, pieces: [], played: 0, plays: 0, seeks: 0, first: null });
  }

  /** It began to play, so many seconds after its page was shown. */
  begun(seconds) {
    this.plays += 1;
    this.first ??= seconds;
  }

  /** It sounded from there to there. */
  heard(from, to) {
    this.played += to - from;
    const pieces = [];
    for (const piece of [...this.pieces, [from, to]].sort((one, other) => one[0] - other[0])) {
      const last = pieces[pieces.length - 1];
      if (last && piece[0] <= last[1] + SAME_S) last[1] = Math.max(last[1], piece[1]);
      else pieces.push([...piece]);
    }
    if (pieces.length > MOST_PIECES) {
      const shortest = pieces.reduce((at, [start, end], place) => (end - start < pieces[at][1] - pieces[at][0] ? place : at), 0);
      pieces.splice(shortest, 1);
    }
    this.pieces = pieces;
  }

  /** Of the sound, 0 to 1; a moment that is missing at its end is none, as the server has it. */
  get share() {
    const seconds = this.pieces.reduce((sum, [start, end]) => sum + end - start, 0);
    if (!(this.duration > 0)) return 0;
    return this.duration - seconds <= Math.min(EDGE_S, this.duration / 20) ? 1 : seconds / this.duration;
  }

  /** As the server takes them. */
  get numbers() {
    const round = (seconds) => Math.round(seconds * 1e6) / 1e6; // clips of a few samples have parts too
    return {
      covered: this.pieces.map((piece) => piece.map(round)),
      played_s: round(this.played),
      plays: this.plays,
      seeks: this.seeks,
      first_play_s: this.first === null ? null : round(this.first),
    };
  }
}
