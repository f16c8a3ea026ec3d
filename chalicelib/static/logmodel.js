// The part of a log that this tab holds: chunks of one range of seqs, without holes but for those of the log itself.

/** Rows of a chunk: one for a gap before it, then its lines. */
export class LogModel {
  constructor() {
    this.clear(0);
  }

  /** Hold nothing, next to seq `at`. */
  clear(at) {
    // Whoever waits for an answer looks whether its range is still the one that is held.
    this.era = (this.era ?? 0) + 1;
    this.chunks = [];
    this.low = at;
    this.high = at;
    this.rows = 0;
    this.lines = 0;
  }

  /** Chunks that follow what is held, each once; `high` is the seq to ask from next. */
  append(chunks, high) {
    for (const { seq, lines } of chunks) {
      const before = this.chunks.at(-1);
      if (before && seq <= before.seq) continue;
      const expected = before ? before.seq + 1 : this.low;
      const gap = seq > expected ? [expected, seq - 1] : null;
      this.chunks.push({ seq, lines, gap, row: this.rows });
      this.rows += lines.length + (gap ? 1 : 0);
      this.lines += lines.length;
    }
    this.high = Math.max(this.high, high);
  }

  /** Put chunks that are not held where they belong; `low` is the first seq of the range after that. Returns rows added above. */
  insert(chunks, low) {
    const first = this.chunks[0];
    const rowsBefore = this.rows;
    const bySeq = new Map(this.chunks.map((chunk) => [chunk.seq, chunk]));
    for (const { seq, lines } of chunks) bySeq.set(seq, { seq, lines });
    const all = [...bySeq.values()].sort((a, b) => a.seq - b.seq);
    const above = first ? first.row : 0;
    this.chunks = [];
    this.low = low;
    this.rows = 0;
    this.lines = 0;
    const { high } = this;
    this.append(all, high);
    if (!first) return this.rows - rowsBefore;
    const moved = this.chunks[this.find(first.seq)];
    return moved.row - above + (moved.lines.length - first.lines.length);
  }

  /** Let go of the oldest chunks until at most `most` lines are held, and at least one chunk. Returns rows removed above. */
  trim(most) {
    let from = 0;
    let { lines } = this;
    while (from < this.chunks.length - 1 && lines > most) {
      lines -= this.chunks[from].lines.length;
      from += 1;
    }
    if (!from) return 0;
    const kept = this.chunks.slice(from);
    const before = this.rows;
    const { high } = this;
    this.clear(kept[0].seq);
    this.append(kept, high);
    return before - this.rows;
  }

  /** Index of the chunk of a seq, or of the first one after it. */
  find(seq) {
    let [from, to] = [0, this.chunks.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.chunks[middle].seq < seq) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  /** {seq, text} or {gap} of a row. */
  at(row) {
    let [from, to] = [0, this.chunks.length - 1];
    while (from < to) {
      const middle = (from + to + 1) >> 1;
      if (this.chunks[middle].row <= row) from = middle;
      else to = middle - 1;
    }
    const chunk = this.chunks[from];
    const offset = row - chunk.row - (chunk.gap ? 1 : 0);
    if (offset < 0) return { gap: chunk.gap };
    return { seq: chunk.seq, text: chunk.lines[offset], first: offset === 0 };
  }

  /** The row where a seq begins, or what stands in its place. */
  rowOf(seq) {
    const chunk = this.chunks[this.find(seq)];
    if (!chunk) return this.rows;
    return chunk.row + (chunk.gap && chunk.seq === seq ? 1 : 0);
  }

  /** Gaps inside the range that `missing`, the server's list, does not have any more. */
  filled(missing) {
    const open = ([first, last]) => missing.some(([from, to]) => from <= first && last <= to);
    return this.chunks.filter((chunk) => chunk.gap && !open(chunk.gap)).map((chunk) => chunk.gap);
  }
}
