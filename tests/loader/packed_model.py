"""A model of packed rows of tokens, written from docs/design/packed-rows.md: which rows a set of token files has, and which
tokens are in each, as a function of seed, epoch and file sizes."""

M = (1 << 64) - 1


def philox(counter, key):
    """Philox4x32-10."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def words(n):
    return [n & 0xFFFFFFFF, n >> 32]


def random(op, index, seed, epoch, shard, sample, draw=0, attempt=0):
    """64 bits: a function of all of its arguments."""
    a = philox(words(epoch) + words(shard), words(seed))
    low, high = words(sample)
    b = philox([low ^ a[2], high ^ a[3], draw, 0], a[:2])
    n = philox([op, index, b[2], b[3]], [b[0], b[1] ^ attempt])
    return n[0] | n[1] << 32


def below(bound, *key):
    attempt = 0
    while True:
        m = random(*key, attempt=attempt) * bound
        if m & M >= (1 << 64) % bound:
            return m >> 64
        attempt += 1


class Splitmix:
    def __init__(self, state):
        self.state = state

    def below(self, n):
        self.state = z = self.state + 0x9E3779B97F4A7C15 & M
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M
        return (z ^ z >> 31) * n >> 64

    def permutation(self, n):
        v = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            v[i], v[j] = v[j], v[i]
        return v


def fill(lens, length, rows, slack):
    """Rows for documents of `lens`, given in their permuted order as (document, tokens): a list of (document, skip, len) each.
    rows None: as many as are needed, and documents go by their exact lengths."""
    made, rest, aside = [], [], []
    for d, n in lens:
        for skip in range(0, n - length + 1, length):
            made.append([length, [(d, skip, length)]])
        if n % length:
            rest.append((d, n - n % length, n % length))

    def kind(part):
        top = part[2].bit_length() - 1
        return part[2] if rows is None else 2 * top + (part[2] >> (top - 1) & 1 if top else 0)

    rest.sort(key=kind, reverse=True)  # stable
    free = [length - row[0] for row in made]
    filled, clock = [0] * len(made), 0  # when a row was filled last
    for part in rest:
        clock += 1
        fits = [i for i in range(len(made)) if free[i] >= part[2]]
        if fits:
            at = min(fits, key=lambda i: (free[i], -filled[i]))
        elif rows is None or len(made) < rows:
            at = len(made)
            made.append([0, []])
            free.append(length)
            filled.append(0)
        else:
            aside.append(part)
            continue
        made[at][1].append(part)
        free[at] -= part[2]
        filled[at] = clock
    while rows is not None and len(made) < rows:
        clock += 1
        made.append([0, []])
        free.append(length)
        filled.append(clock)
    # Padding stays in the rows with the least room; what was put aside is cut into those with the most.
    order = sorted((i for i in range(len(made)) if free[i]), key=lambda i: (free[i], -filled[i]))
    while rows is not None and order and free[order[0]] <= slack:
        slack -= free[order.pop(0)]
    order.sort(key=lambda i: (-free[i], -filled[i]))
    for d, skip, n in aside:
        while n:
            take = min(n, free[order[0]])
            made[order[0]][1].append((d, skip, take))
            free[order[0]] -= take
            skip, n = skip + take, n - take
            if not free[order[0]]:
                order.pop(0)
    return [parts for _, parts in made]


def concat(lens, length, rows):
    made = [[]]
    free = length
    for d, n in lens:
        skip = 0
        while skip < n:
            take = min(n - skip, free)
            made[-1].append((d, skip, take))
            skip, free = skip + take, free - take
            if not free:
                made.append([])
                free = length
    return made[:rows]


class Model:
    """The rows of token files, of which each is a list of the lengths of its documents."""

    def __init__(self, files, length, pack, seed, long_documents=None):
        self.length, self.pack, self.seed, self.long = length, pack, seed, long_documents
        self.slack = min(8, length // 64) if pack == "fit" else 0
        self.rows_of_piece = max((1 << 20) // length, 32)
        self.piece = self.rows_of_piece * (length - self.slack)
        self.files = files
        self.starts = []
        for lens in files:
            at, starts = 0, []
            for n in lens:
                starts.append(at)
                at += n
            self.starts.append(starts)
        self.totals = [sum(lens) for lens in files]
        pieces = [-(-total // self.piece) for total in self.totals]
        n = max((1 << 25) // self.piece, 1)
        while n > 1 and sum(-(-p // n) for p in pieces) < 1024:
            n //= 2
        # file, first piece, pieces, rows before it in the file, rows
        self.stretches, self.left_out = [], 0
        for f in range(len(files)):
            before = 0
            for first in range(0, pieces[f], n):
                end = min(first + n, pieces[f])
                rows = sum(self.nrows(f, p) for p in range(first, end))
                if rows:
                    self.stretches.append((f, first, end - first, before, rows))
                before += rows
        self.nrows_all = sum(s[4] for s in self.stretches)

    def place(self, f, piece):
        """The tokens of a piece: from, to, whether it is the documents that begin there, its rows."""
        begin, end = piece * self.piece, min((piece + 1) * self.piece, self.totals[f])
        if self.pack == "whole":
            return begin, end, None
        rows = (end - begin) // (self.length - self.slack)
        return begin, begin + rows * (self.length - self.slack), rows

    def documents(self, f, piece):
        """The (document, begin, tokens, whether it goes on after them) of a piece, with empty ones."""
        begin, end, _ = self.place(f, piece)
        found = []
        for d, (start, n) in enumerate(zip(self.starts[f], self.files[f])):
            if self.pack == "whole":
                if begin <= start < end:
                    found.append((d, start, n, False))
            else:
                a, b = max(start, begin), min(start + n, end)
                if (a < b) or (n == 0 and begin <= start < end):
                    found.append((d, a, b - a, start + n > end))
        return found

    def used(self, n):
        if self.pack != "whole" or n <= self.length or self.long == "split":
            return n
        return self.length if self.long == "truncate" else 0

    def nrows(self, f, piece):
        rows = self.place(f, piece)[2]
        if rows is None:
            return len(fill([(d, self.used(n)) for d, _, n, _ in self.documents(f, piece)], self.length, None, 0))
        return rows

    def pack_piece(self, stretch, piece, epoch):
        """The rows of a piece: lists of (first token in the file, tokens, document, whether its last token ends it)."""
        f = self.stretches[stretch][0]
        documents, rows = self.documents(f, piece), self.place(f, piece)[2]
        generator = Splitmix(random(7, 0, self.seed, epoch, stretch, piece))
        order = generator.permutation(len(documents))
        lens = [(i, self.used(documents[i][2])) for i in order]
        if self.pack == "concat":
            made = concat(lens, self.length, rows)
        else:
            made = fill(lens, self.length, rows, rows * self.length - sum(n for _, n in lens) if rows else 0)
        out = [None] * len(made)
        for place, parts in zip(generator.permutation(len(made)), made):
            out[place] = [(documents[i][1] + skip, n, documents[i][0], skip + n == documents[i][2] and not documents[i][3])
                          for i, skip, n in parts]
        return out

    def rows(self, stretch, epoch):
        """The rows of a stretch in their order in an epoch."""
        f, first, n, _, _ = self.stretches[stretch]
        pieces = list(range(n))
        for i in range(n - 1, 0, -1):
            j = below(i + 1, 6, i, self.seed, epoch, stretch, 0)
            pieces[i], pieces[j] = pieces[j], pieces[i]
        return [row for p in pieces for row in self.pack_piece(stretch, first + p, epoch)]

    def epoch(self, epoch):
        """The row by its file and its number in there."""
        made = {}
        for s, (f, _, _, before, _) in enumerate(self.stretches):
            for i, row in enumerate(self.rows(s, epoch)):
                made[f, before + i] = row
        return made
