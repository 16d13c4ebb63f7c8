// Ends a test that does not end by itself, with its name and where each of its threads stands.
#ifndef TF_RDMABATCH_TESTS_CC_WATCHDOG_H_
#define TF_RDMABATCH_TESTS_CC_WATCHDOG_H_

namespace rdmabatch::testing {

// From now on a test of this process that takes longer than `seconds` ends the process. Call it
// once, before the first test. Processes that a test forks are not watched.
void WatchTests(unsigned seconds);

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_WATCHDOG_H_
