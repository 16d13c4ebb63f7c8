/* Sleep and wake-up: a progress thread that sleeps when there is nothing to do, and peers that wake it.
 *
 * The sleeper announces its sleep under a new number, fences, polls once more, and only then waits for the event. A
 * waker publishes, fences, reads the announcement, and signals each number at most once. Each thread has a store buffer,
 * as on x86: what it wrote becomes visible later, in order, unless it fences.
 *
 * Proven for every interleaving: no wake-up is lost. The sleeper ends only when it took every item, and a sleeper that
 * nobody wakes is a deadlock.
 *
 * Sizes: WAKERS wakers that publish ITEMS items each.
 * Faults that must be found: -DNO_SECOND_POLL, -DNO_SLEEPER_FENCE, -DNO_WAKER_FENCE.
 */
#ifndef WAKERS
#define WAKERS 2
#endif
#ifndef ITEMS
#define ITEMS 2
#endif

/* Memory. Each variable has one writer. */
byte published[WAKERS]; /* by the waker */
byte sleeping[WAKERS];  /* by the sleeper, one copy for each waker; 0: awake */
bool event;             /* kept by the kernel, set by any waker, cleared by the sleeper */

chan waker_stores[WAKERS] = [2] of {byte};
chan sleeper_stores = [WAKERS + 1] of {byte, byte};

byte seen[WAKERS];
#if WAKERS == 1
#define DONE (seen[0] == ITEMS)
#else
#define DONE (seen[0] == ITEMS && seen[1] == ITEMS)
#endif

/* Store buffers drain whenever they like. */
active proctype StoreBuffers() {
  byte w, value;
end:
  do
  :: atomic { sleeper_stores ? w, value -> sleeping[w] = value }
  :: atomic { waker_stores[0] ? value -> published[0] = value }
#if WAKERS > 1
  :: atomic { waker_stores[1] ? value -> published[1] = value }
#endif
  od
}

active [WAKERS] proctype Waker() {
  byte me = _pid - 1; /* StoreBuffers has number 0 */
  byte item = 0;
  byte sleep;
  byte last_woken = 0;
  do
  :: item < ITEMS ->
    item++;
    waker_stores[me] ! item;
#ifndef NO_WAKER_FENCE
    empty(waker_stores[me]);
#endif
    sleep = sleeping[me];
    if
    :: sleep != 0 && sleep != last_woken ->
      last_woken = sleep;
      event = true
    :: else
    fi
  :: else -> break
  od
}

/* One waker after the other, as a real poll reads them. */
inline Poll() {
  news = false;
  w = 0;
  do
  :: w < WAKERS ->
    atomic {
      news = news || published[w] != seen[w];
      seen[w] = published[w]
    }
    w++
  :: else -> break
  od
}

inline Announce(value) {
  w = 0;
  do
  :: w < WAKERS -> sleeper_stores ! w, value; w++
  :: else -> break
  od
}

active proctype Sleeper() {
  byte w;
  byte number = 0;
  bool news;
  do
  :: DONE -> break
  :: else ->
    Poll();
    if
    :: news
    :: else ->
      number++;
      Announce(number);
#ifndef NO_SLEEPER_FENCE
      empty(sleeper_stores);
#endif
#ifdef NO_SECOND_POLL
      news = false;
#else
      Poll();
#endif
      if
      :: news
      :: !news -> event
      fi;
      Announce(0);
      event = false
    fi
  od
}
