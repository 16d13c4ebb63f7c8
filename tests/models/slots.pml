/* Slots and phase bitmaps: one direction of a connection, and the way back of its freed slots.
 *
 * Proven for every interleaving of the two programs and the two devices (run with spin's `pan`):
 *   no loss        the receiver ends only when it consumed every message; otherwise the end is a deadlock
 *   no duplicate   a message is consumed once (assertion in Receiver)
 *   no early reuse a slot is overwritten only after it was consumed (assertion in ForwardWire)
 *   no early news  a slot is consumed only after its payload is there (assertion in Receiver)
 *   no deadlock    and in the end every slot has come back to the sender
 *
 * What is assumed of a device is an ordered wire: writes become visible at the peer in the order in which they were
 * posted. Bitmap words have one writer each, and a word is written whole.
 *
 * Sizes: WORDS bitmap words of SLOTS slots each, MESSAGES messages; WIRE and BACK writes may be on their way.
 * Faults that must be found: -DWORD_BEFORE_PAYLOAD, -DFREE_BEFORE_CONSUMED, -DCLEAR_ARRIVED.
 */
#ifndef WORDS
#define WORDS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef MESSAGES
#define MESSAGES 7
#endif
#ifndef WIRE
#define WIRE 4
#endif
#ifndef BACK
#define BACK 2
#endif

#define ALL ((1 << SLOTS) - 1)
#define BIT(slot) (1 << ((slot) % SLOTS))
#define WORD_OF(slot) ((slot) / SLOTS)

mtype = {payload, word};
chan wire = [WIRE] of {mtype, byte, byte}; /* payload: slot, message; word: index, value */
chan back = [BACK] of {byte, byte};        /* index, value */

/* Memory of the receiver that the sender writes. */
byte contents[WORDS * SLOTS];
byte arrived[WORDS];
/* Memory of the sender that the receiver writes. */
byte freed[WORDS];

/* For the assertions only: payload there and not consumed yet; messages consumed. */
bool filled[WORDS * SLOTS];
bool consumed[MESSAGES];

/* A slot can be reused when its phase bit came back. */
byte sent[WORDS];
#define REUSABLE(w) (~(sent[w] ^ freed[w]) & ALL)
#define NEWS(w) (arrived[w] ^ seen[w])
#if WORDS == 1
#define SOME_REUSABLE (REUSABLE(0) != 0)
#define ALL_REUSABLE (REUSABLE(0) == ALL)
#define SOME_NEWS (NEWS(0) != 0)
#else
#define SOME_REUSABLE (REUSABLE(0) != 0 || REUSABLE(1) != 0)
#define ALL_REUSABLE (REUSABLE(0) == ALL && REUSABLE(1) == ALL)
#define SOME_NEWS (NEWS(0) != 0 || NEWS(1) != 0)
#endif

active proctype Sender() {
  byte next = 0; /* message */
  byte slot;
  bool touched[WORDS];
  byte w;
  do
  :: next < MESSAGES ->
    /* A batch: payloads into reusable slots, as many as it likes, then the words that changed. */
    SOME_REUSABLE;
    slot = 0;
    do
    :: slot < WORDS * SLOTS && next < MESSAGES ->
      w = WORD_OF(slot);
      if
      :: (REUSABLE(w) & BIT(slot)) != 0 ->
        sent[w] = sent[w] ^ BIT(slot);
#ifdef WORD_BEFORE_PAYLOAD
        wire ! word, w, sent[w];
        wire ! payload, slot, next;
#else
        wire ! payload, slot, next;
        touched[w] = true;
#endif
        next++;
        if
        :: slot++
        :: slot = WORDS * SLOTS /* the batch ends here */
        fi
      :: else -> slot++
      fi
    :: else -> break
    od;
    w = 0;
    do
    :: w < WORDS ->
      if
      :: touched[w] -> wire ! word, w, sent[w]; touched[w] = false
      :: else
      fi;
      w++
    :: else -> break
    od
  :: else -> break
  od;
  ALL_REUSABLE
}

active proctype ForwardWire() {
  byte index, value;
end:
  do
  :: atomic {
      wire ? payload, index, value ->
      assert(!filled[index]);
      contents[index] = value;
      filled[index] = true
    }
  :: atomic { wire ? word, index, value -> arrived[index] = value }
  od
}

active proctype BackWire() {
  byte index, value;
end:
  do
  :: atomic { back ? index, value -> freed[index] = value }
  od
}

active proctype Receiver() {
  byte seen[WORDS];
  byte free[WORDS];
  byte total = 0;
  byte w, slot, news;
  bool owed; /* frees that the sender was not told yet */
  do
  :: total < MESSAGES ->
    SOME_NEWS;
    w = 0;
    do
    :: w < WORDS ->
      news = NEWS(w); /* read once; what arrives meanwhile is news of the next round */
      slot = w * SLOTS;
      owed = false;
      do
      :: slot < (w + 1) * SLOTS && (news & BIT(slot)) != 0 ->
        free[w] = free[w] ^ BIT(slot);
#ifdef FREE_BEFORE_CONSUMED
        back ! w, free[w];
#endif
        atomic {
          assert(filled[slot]);
          assert(!consumed[contents[slot]]);
          consumed[contents[slot]] = true;
          filled[slot] = false;
          total++
        }
#ifdef CLEAR_ARRIVED
        arrived[w] = arrived[w] & ~BIT(slot);
#else
        seen[w] = seen[w] ^ BIT(slot);
#endif
        slot++;
        /* Frees are told singly or gathered, but before the receiver waits again. */
        if
        :: back ! w, free[w]; owed = false
        :: owed = true
        fi
      :: slot < (w + 1) * SLOTS && (news & BIT(slot)) == 0 -> slot++
      :: slot >= (w + 1) * SLOTS -> break
      od;
      if
      :: owed -> back ! w, free[w]
      :: else
      fi;
      w++
    :: else -> break
    od
  :: else -> break
  od
}
