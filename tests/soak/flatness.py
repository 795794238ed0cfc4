"""Whether daemons hold more and more, hour after hour."""

MIB = 1 << 20
LEAST_HOURS = 6  # of a span that is compared

# How much the highest of a span's second half may exceed the highest of its second quarter; the
# first quarter warms up (connections to every peer, arenas of malloc, buffers of gRPC).
#   private memory: pages of malloc's arenas, of which each thread has one, go on filling up slowly:
#     the controller's by 15 KiB an hour, while what it has allocated (heaptrack) stays the same. 25
#     KiB kept by mistake of each job exceed this within ten days, 200 KiB within one.
#   shared memory: stream buffers and IPUs' memory of jobs; none runs when we look.
#   files, threads: connections that end in their own time (a watch that was killed, a peer that
#     came back) and threads of gRPC's pools, which shrink slowly.
ALLOWED = {"private": 3 * MIB, "shared": 0, "files": 4, "threads": 4}


def spans(rows, is_calm):
    """The parts of a daemon's samples that are compared: the hours without restarts, then each of its lives
    that goes on after them. Yields (title, samples)."""
    calm = [row for row in rows if is_calm(row[1])]
    yield "calm", calm
    for generation in sorted({row[0] for row in rows}):
        life = [row for row in rows if row[0] == generation]
        if life[-1][1] > calm[-1][1]:
            yield f"life {generation}", life


def highest(samples, name):
    return max(getattr(holdings, name) for _, _, holdings in samples)


def growth(samples):
    early = samples[len(samples) // 4:len(samples) // 2]
    late = samples[len(samples) // 2:]
    return {name: highest(late, name) - highest(early, name) for name in ALLOWED}


def columns(holdings):
    return (f"{holdings.resident / MIB:8.1f} {holdings.private / MIB:8.2f} "
            f"{holdings.shared / MIB:7.2f} {holdings.files:6} {holdings.threads:8}")


def report(samples, is_calm):
    """A table, and what has grown. `samples`: by daemon, (life, hour, Holdings)."""
    head = f"{'daemon':16} {'':8} {'hours':>9}  {'':9}"
    lines = [f"{head} resident  private  shared  files  threads",
             f"{'':{len(head)}}      MiB      MiB     MiB"]
    grown = []
    for daemon, rows in samples.items():
        for title, span in spans(rows, is_calm):
            name = f"{daemon:16} {title:8} {f'{span[0][1]}-{span[-1][1]}':>9}"
            if len(span) < LEAST_HOURS:
                lines.append(f"{name}  end       {columns(span[-1][2])}")
                continue
            lines.append(f"{name}  warmed up {columns(span[len(span) // 4][2])}")
            lines.append(f"{'':{len(name)}}  end       {columns(span[-1][2])}")
            grown += [f"{daemon}, {title}: {what} grew by {more}"
                      for what, more in growth(span).items() if more > ALLOWED[what]]
    return "\n".join(lines), grown
