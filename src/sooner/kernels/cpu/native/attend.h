// Attention over paged keys and values. A query walks the positions that it sees in order; its sums are taken over
// segments of 128 positions, at absolute multiples of 128, which are then folded together in order. Neither the rows
// that share loads with it nor the threads that compute its segments can change its bits.
#pragma once

namespace {

constexpr int PAGE = 16;
constexpr int PAGES = 8;  // of a segment
constexpr int SEGMENT = PAGES * PAGE;
constexpr int STRIP = 8;        // tiles that pass over a segment while it is in the cache
constexpr int MOST_SIZE = 256;  // of a head

INLINE int ceil_div(int a, int b) { return (a + b - 1) / b; }
INLINE const uint8_t* bytes(const float* p) { return reinterpret_cast<const uint8_t*>(p); }

// Rows [row, row + rows) of one sequence, and `heads` query heads of one kv head from `head` on. Its query number
// r * heads + h is head h of row r; as many as fit a tile's rows are a tile, up to STRIP tiles a strip.
struct Span {
  int row, rows, kv, head, heads;
  int queries() const { return rows * heads; }
};

// The positions that a row sees.
struct Bounds {
  int first, total;
  int first_segment() const { return first / SEGMENT; }
  int last_segment() const { return (total - 1) / SEGMENT; }
};

// Derived numbers of one call, and where its scratch lies.
struct Attention {
  const Attend& job;
  const Rows& rows;
  const Heads& heads;
  int group;        // query heads of a kv head
  int tile_heads;   // of them, as many as a tile holds
  int tile_rows;    // rows that a tile holds beside them
  int segments;     // most of a row
  int stride;       // floats of a partial: [size] sums of weight * value, greatest score, sum of weights
  bool apart;       // segments are pieces of work of their own, since there are few strips
  float* queries;   // [kv, rows, group, size], normalised and rotated
  float* partials;  // [segments, kv, rows, group, stride] if apart

  Attention(const Attend& job, int threads, float* scratch) : job(job), rows(*job.rows), heads(*job.heads) {
    group = heads.query / heads.kv;
    tile_heads = ceil_div(group, ceil_div(group, ROWS));
    tile_rows = greater(ROWS / group, 1);
    int longest = 0, strips = 0;
    for (int r = 0; r < rows.rows; ++r) longest = greater(longest, rows.context[r]);
    for (int r = 0; r < rows.rows; r += strip_length(r)) ++strips;
    segments = ceil_div(longest + rows.extra_width, SEGMENT);
    stride = heads.size + PAGE;
    apart = threads > 1 && strips * heads.kv < 4 * threads;
    queries = scratch;
    partials = queries + size_t(rows.rows) * size_t(heads.query * heads.size);
  }

  size_t scratch() const {
    return size_t(rows.rows) * size_t(heads.query) * size_t(heads.size + (apart ? segments * stride : 0));
  }
  size_t segment_scratch() const { return size_t(STRIP * ROWS * SEGMENT + PAGE * heads.size); }
  size_t local_scratch() const { return segment_scratch() + size_t(2 * STRIP * ROWS * stride); }

  int strip_length(int row) const {
    int n = 1;
    while (n < STRIP * tile_rows && row + n < rows.rows && rows.sequence[row + n] == rows.sequence[row]) ++n;
    return n;
  }
  Bounds bounds(int row) const {
    int extras = 0;
    while (extras < rows.extra_width && rows.extra[row * rows.extra_width + extras] >= 0) ++extras;
    return {heads.window ? greater(rows.positions[row] + 1 - heads.window, 0) : 0, rows.context[row] + extras};
  }
  int page(int row, int index) const { return rows.tables[rows.sequence[row] * rows.table_width + index]; }
  int slot(int row, int position) const {
    const int beyond = position - rows.context[row];
    if (beyond >= 0) return rows.extra[row * rows.extra_width + beyond];
    return page(row, position / PAGE) * PAGE + position % PAGE;
  }
  float* keys(int page, int kv) const { return job.cache.keys + place(page, kv); }
  float* values(int page, int kv) const { return job.cache.values + place(page, kv); }
  int64_t place(int page, int kv) const { return page * job.cache.page + int64_t(kv) * (heads.size * PAGE); }
  size_t number(int row, int kv, int head) const { return (size_t(kv) * rows.rows + row) * group + head; }
  float* query(int row, int kv, int head) const { return queries + number(row, kv, head) * size_t(heads.size); }
  float* partial(int segment, int row, int kv, int head) const {
    return partials + (size_t(segment) * rows.rows * heads.query + number(row, kv, head)) * size_t(stride);
  }
  float* out(int row, int head) const { return job.out + (size_t(row) * heads.query + head) * size_t(heads.size); }
};

// One head of one row, normalised and rotated: rotary positions on half-split pairs (i, i + half).
INLINE void prepare_head(const Heads& h, const float* norm, float eps, int position, const float* x, float* y) {
  if (norm)
    normalise(x, h.size, norm, eps, nullptr, y);
  else
    memcpy(y, x, size_t(h.size) * sizeof(float));
  const int half = h.rotary_half;
  const float *cos = h.cos + size_t(position) * size_t(half), *sin = h.sin + size_t(position) * size_t(half);
  for (int i = 0; i < half; ++i) {
    const float a = y[i], b = y[i + half];
    y[i] = a * cos[i] - b * sin[i];
    y[i + half] = b * cos[i] + a * sin[i];
  }
}

// Head `head` of a qkv row: queries go to scratch, keys and values to their slot of the cache.
void prepare(const Attention& t, int row, int head) {
  const Heads& h = t.heads;
  const float* x = t.job.qkv + (size_t(row) * size_t(h.query + 2 * h.kv) + size_t(head)) * size_t(h.size);
  const int position = t.rows.positions[row], page = t.rows.slots[row] / PAGE, offset = t.rows.slots[row] % PAGE;
  if (head < h.query) {
    float* y = t.query(row, head / t.group, head % t.group);
    return prepare_head(h, h.query_norm, h.query_eps, position, x, y);
  }
  head -= h.query;
  if (head >= h.kv) {
    memcpy(t.values(page, head - h.kv) + offset * h.size, x, size_t(h.size) * sizeof(float));
    return;
  }
  float key[MOST_SIZE];
  prepare_head(h, h.key_norm, h.key_eps, position, x, key);
  float* keys = t.keys(page, head) + offset;
  for (int i = 0; i < h.size; ++i) keys[i * PAGE] = key[i];
}

// Where the partials of a strip are: of(r, h) has those of head h of its row r.
struct Partials {
  float* base;
  int row_stride, stride;
  float* of(int r, int h) const { return base + r * row_stride + h * stride; }
};

// One segment of one strip: scores, then weights, then weighted values. Page by page for all tiles, so that each page
// is read into the first cache once.
struct SegmentWork {
  const Attention& t;
  const Span& span;
  const Bounds* bounds;  // [span.rows]
  int first_page;
  int later;      // the first page of what this thread will do next, -1 where that is another strip's
  float* scores;  // [queries][SEGMENT], then weights
  float* page;    // [16 * size], scratch

  // The offsets of a page that a row sees; from >= to where it sees nothing.
  int from(int r, int p) const { return greater(bounds[r].first - (first_page + p) * PAGE, 0); }
  int to(int r, int p) const { return lesser(bounds[r].total - (first_page + p) * PAGE, PAGE); }
  bool cached(int r, int p) const { return (first_page + p) * PAGE + to(r, p) <= t.rows.context[span.row + r]; }
  bool full(int r, int p) const { return from(r, p) == 0 && to(r, p) == PAGE && cached(r, p); }
  float* scores_of(int r) const { return scores + r * span.heads * SEGMENT; }

  void run(const Partials& partials) const {
    sweep(1, [&](int r, int rows, int p, int run) { score(r, rows, p, run); });
    for (int r = 0; r < span.rows; ++r)
      for (int h = 0; h < span.heads; ++h) weigh(r, scores_of(r) + h * SEGMENT, partials.of(r, h));
    sweep(PAGES, [&](int r, int rows, int p, int run) { mix(r, rows, p, run, partials); });
  }

  // Calls body(row, rows, page, run) so that every row meets its pages in order: runs of up to `most` pages that all
  // rows of a tile see in full, other pages row by row.
  template <class Body>
  INLINE void sweep(int most, Body&& body) const {
    const int step = greater(most, WalkKeys::widest(lesser(t.tile_rows, span.rows) * span.heads));
    for (int begin = 0; begin < PAGES; begin += step)
      for (int r = 0, rows; r < span.rows; r += rows) {
        rows = lesser(t.tile_rows, span.rows - r);
        for (int p = begin, run; p < lesser(begin + step, PAGES); p += greater(run, 1)) {
          for (run = 0; p + run < lesser(begin + step, PAGES) && all_full(r, rows, p + run); ++run) continue;
          if (run) body(r, rows, p, run);
          for (int i = r; !run && i < r + rows; ++i)
            if (from(i, p) < to(i, p)) body(i, 1, p, 1);
        }
      }
  }
  bool all_full(int r, int rows, int p) const {
    for (int i = r; i < r + rows; ++i)
      if (!full(i, p)) return false;
    return true;
  }

  // Scores of all heads of rows [r, r + rows) with the keys of pages [p, p + run).
  void score(int r, int rows, int p, int run) const {
    const int queries = rows * span.heads, size = t.heads.size;
    const Inputs inputs = {t.query(span.row + r, span.kv, span.head), size_t(size), size};
    for (int end = p + run; p < end;) {
      const int n = lesser(WalkKeys::widest(queries), end - p);
      const uint8_t* keys[BLOCKS];
      for (int i = 0; i < n; ++i) keys[i] = bytes(keys_of(r, p + i));
      Ahead ahead = ahead_of(r, p, n);
      tile_for<WalkKeys>(queries, n)(keys, 0, inputs, {scores_of(r) + p * PAGE, SEGMENT, SET}, 1, &ahead);
      p += n;
    }
  }

  // Pages lie all over the cache, where the hardware cannot guess the next one: while scores are taken from `n` pages
  // from p on, fetches their values and the keys that come after this segment's. Each tile of the strip fetches a part.
  Ahead ahead_of(int r, int p, int n) const {
    const int tiles = ceil_div(span.rows, t.tile_rows), tile = r / t.tile_rows;
    const size_t part = size_t(t.heads.size) * PAGE * sizeof(float) / size_t(tiles);
    Ahead ahead = {{}, size_t(tile) * part, part / size_t(t.heads.size)};
    for (int i = 0; i < lesser(n, 2); ++i) {
      const int here = first_page + p + i, next = later + p + i;
      ahead.streams[2 * i] = bytes(exists(here) ? t.values(t.page(span.row, here), span.kv) : t.values(0, 0));
      ahead.streams[2 * i + 1] = bytes(later >= 0 && exists(next) ? t.keys(t.page(span.row, next), span.kv) : t.keys(0, 0));
    }
    return ahead;
  }
  bool exists(int page) const { return page * PAGE < t.rows.context[span.row]; }

  // Where page p of a row is; for a tree row that sees more than its sequence's pages, copied from its slots.
  const float* keys_of(int r, int p) const {
    if (cached(r, p)) return t.keys(t.page(span.row + r, first_page + p), span.kv);
    for (int lane = from(r, p); lane < to(r, p); ++lane) {
      const int slot = t.slot(span.row + r, (first_page + p) * PAGE + lane);
      const float* key = t.keys(slot / PAGE, span.kv) + slot % PAGE;
      for (int i = 0; i < t.heads.size; ++i) page[i * PAGE + lane] = key[i * PAGE];
    }
    return page;
  }
  const float* values_of(int r, int p) const {
    if (cached(r, p)) return t.values(t.page(span.row + r, first_page + p), span.kv);
    const size_t size = size_t(t.heads.size);
    for (int lane = from(r, p); lane < to(r, p); ++lane) {
      const int slot = t.slot(span.row + r, (first_page + p) * PAGE + lane);
      memcpy(page + lane * size, t.values(slot / PAGE, span.kv) + slot % PAGE * size, size * sizeof(float));
    }
    return page;
  }

  // Scores of one query to weights, exp(score - greatest); what the row does not see weighs 0.
  void weigh(int r, float* s, float* partial) const {
    const int begin = greater(bounds[r].first / PAGE - first_page, 0);
    const int end = lesser(ceil_div(bounds[r].total, PAGE) - first_page, PAGES);
    v16 most = all(-__builtin_inff());
    for (int p = begin; p < end; ++p) {
      v16 x = mul(load(s + p * PAGE), all(t.heads.scale));
      if (t.heads.softcap != 0.0f) x = mul(all(t.heads.softcap), tanh(div(x, all(t.heads.softcap))));
      if (from(r, p) > 0 || to(r, p) < PAGE) x = mask(x, from(r, p), to(r, p));
      store(s + p * PAGE, x);
      most = max(x, most);
    }
    const float top = greatest(most);
    v16 weights = zero();
#pragma GCC unroll UNROLL
    for (int p = begin; p < end; ++p) {
      const v16 w = exp(sub(load(s + p * PAGE), all(top)));
      store(s + p * PAGE, w);
      weights = add(weights, w);
    }
    for (int i = 0; i < t.heads.size; i += 16) store(partial + i, zero());
    partial[t.heads.size] = top;
    partial[t.heads.size + 1] = ::sum(weights);
  }
  static v16 mask(v16 x, int from, int to) {
    static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const v16 lane = load(lanes), nothing = all(-__builtin_inff());
    return where_ge(lane, all(float(from)), where_ge(lane, all(float(to)), nothing, x), nothing);
  }

  // Adds weight * value over pages [p, p + run) to the sums of all heads of rows [r, r + rows).
  void mix(int r, int rows, int p, int run, const Partials& partials) const {
    const int size = t.heads.size, queries = rows * span.heads, begin = from(r, p);
    const Inputs weights = {scores_of(r) + p * PAGE + begin, SEGMENT, to(r, p) - begin};
    const float* pages[PAGES];
    for (int i = 0; i < run; ++i) pages[i] = values_of(r, p + i) + begin * size;
    for (int at = 0; at < size;) {
      const int n = lesser(WalkValues::widest(queries), (size - at) / 16);
      const uint8_t* values[PAGES * BLOCKS];
      for (int i = 0; i < run; ++i)
        for (int b = 0; b < n; ++b) values[i * n + b] = bytes(pages[i] + at + 16 * b);
      tile_for<WalkValues>(queries, n)(values, size_t(size) * sizeof(float), weights,
                                        {partials.of(r, 0) + at, size_t(partials.stride), CONTINUE}, run, nullptr);
      at += 16 * n;
    }
  }
};

// Joins the next segment's partial to a query's state. `rise` is its greatest score less the state's, `small`
// exp(-|rise|).
INLINE void fold(float* state, const float* next, int size, float rise, float small) {
  const float a = rise > 0.0f ? small : 1.0f, b = rise > 0.0f ? 1.0f : small;
  for (int i = 0; i < size; i += 16) store(state + i, fma(load(state + i), all(a), mul(load(next + i), all(b))));
  if (rise > 0.0f) state[size] = next[size];
  state[size + 1] = __builtin_fmaf(state[size + 1], a, next[size + 1] * b);
}

INLINE void divide(const float* state, int size, float* out) {
  for (int i = 0; i < size; i += 16) store(out + i, div(load(state + i), all(state[size + 1])));
}

// A strip and the bounds of its rows.
struct StripWork {
  const Attention& t;
  const Span span;
  Bounds bounds[STRIP * ROWS];
  int first, last;  // segments

  StripWork(const Attention& t, const Span& span) : t(t), span(span), first(t.segments), last(-1) {
    for (int r = 0; r < span.rows; ++r) {
      bounds[r] = t.bounds(span.row + r);
      first = lesser(first, bounds[r].first_segment());
      last = greater(last, bounds[r].last_segment());
    }
  }

  // One segment, left in t.partials. `next` is the one that this thread will do then.
  void apart(int segment, int next, float* scratch) const {
    if (segment >= first && segment <= last)
      sum(segment, next, scratch, {t.partial(segment, span.row, span.kv, span.head), t.group * t.stride, t.stride});
  }
  void sum(int segment, int next, float* scratch, const Partials& partials) const {
    const int later = next <= last ? next * PAGES : -1;
    SegmentWork{t, span, bounds, segment * PAGES, later, scratch, scratch + STRIP * ROWS * SEGMENT}.run(partials);
  }

  // All segments, folded as they come.
  void whole(float* scratch) const {
    const int row_stride = span.heads * t.stride, queries = span.rows * span.heads;
    float* states = scratch + t.segment_scratch();
    const Partials partials = {states + STRIP * ROWS * t.stride, row_stride, t.stride};
    for (int segment = first; segment <= last; ++segment) {
      sum(segment, segment + 1, scratch, partials);
      join(segment, states, partials.base);
    }
    for (int q = 0; q < queries; ++q)
      divide(states + q * t.stride, t.heads.size,
             t.out(span.row + q / span.heads, span.kv * t.group + span.head + q % span.heads));
  }

  void join(int segment, float* states, const float* partials) const {
    const int size = t.heads.size, queries = span.rows * span.heads;
    for (int begin = 0; begin < queries; begin += 16) {
      const int end = lesser(begin + 16, queries);
      float rise[16] = {}, small[16];
      for (int q = begin; q < end; ++q) rise[q - begin] = partials[q * t.stride + size] - states[q * t.stride + size];
      for (int i = 0; i < 16; ++i) small[i] = rise[i] > 0.0f ? -rise[i] : rise[i];
      store(small, exp(load(small)));
      for (int q = begin; q < end; ++q) {
        const Bounds& row = bounds[q / span.heads];
        float* state = states + q * t.stride;
        const float* next = partials + q * t.stride;
        if (segment == row.first_segment())
          memcpy(state, next, size_t(t.stride) * sizeof(float));
        else if (segment > row.first_segment() && segment <= row.last_segment())
          fold(state, next, size, rise[q - begin], small[q - begin]);
      }
    }
  }
};

// Folds the segments that apart() has left.
void fold_apart(const Attention& t, int row, int kv, int head) {
  const Bounds bounds = t.bounds(row);
  const int first = bounds.first_segment(), size = t.heads.size;
  float* state = t.partial(first, row, kv, head);
  for (int segment = first + 1; segment <= bounds.last_segment(); ++segment) {
    const float *next = t.partial(segment, row, kv, head), rise = next[size] - state[size];
    fold(state, next, size, rise, exp(rise > 0.0f ? -rise : rise));
  }
  divide(state, size, t.out(row, kv * t.group + head));
}

// Calls body(span) for every strip of the pass.
template <class Body>
void each_strip(const Attention& t, Body&& body) {
  for (int kv = 0; kv < t.heads.kv; ++kv)
    for (int head = 0; head < t.group; head += t.tile_heads)
      for (int row = 0, n; row < t.rows.rows; row += n) {
        n = t.strip_length(row);
        body(Span{row, n, kv, head, lesser(t.tile_heads, t.group - head)});
      }
}

void attend(Team& team, const void* arguments) {
  const Attention t(*static_cast<const Attend*>(arguments), team.size, team.shared);
  const int heads = t.heads.query + 2 * t.heads.kv, prepared = t.rows.rows * heads;
  for (int i = team.begin(prepared); i < team.end(prepared); ++i) prepare(t, i / heads, i % heads);
  team.barrier();
  int item = 0, mine = team.take();
  const auto claimed = [&] { return item++ == mine ? (mine = team.take(), true) : false; };
  each_strip(t, [&](const Span& span) {
    if (!t.apart) {
      if (claimed()) StripWork(t, span).whole(team.local);
      return;
    }
    for (int segment = 0; segment < t.segments; ++segment)
      if (claimed()) StripWork(t, span).apart(segment, segment + mine - item + 1, team.local);
  });
  if (!t.apart) return;
  team.barrier();
  const int folded = t.rows.rows * t.heads.query;
  for (int i = team.begin(folded); i < team.end(folded); ++i) {
    const int head = i % t.heads.query;
    fold_apart(t, i / t.heads.query, head / t.group, head % t.group);
  }
}

// The scratch that attend() wants, in floats.
void attend_scratch(const Attend& job, int threads, size_t& shared, size_t& local) {
  const Attention t(job, threads, nullptr);
  shared = t.scratch();
  local = t.local_scratch();
}

}  // namespace
