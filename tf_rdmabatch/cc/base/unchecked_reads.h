// UncheckedReads: reads that the thread sanitizer is not to check.
#ifndef TF_RDMABATCH_CC_BASE_UNCHECKED_READS_H_
#define TF_RDMABATCH_CC_BASE_UNCHECKED_READS_H_

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace rdmabatch {

// While it lives, those of its thread. For memory that a peer reads by this process, as a device
// would for it: what orders such reads with writes goes over the wire, or the reader checks version
// words, and the sanitizer sees neither.
class UncheckedReads {
 public:
#if defined(__SANITIZE_THREAD__)
  UncheckedReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~UncheckedReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
  // User-provided: the compiler takes an object without them for unused.
  UncheckedReads() {}   // NOLINT(modernize-use-equals-default)
  ~UncheckedReads() {}  // NOLINT(modernize-use-equals-default)
#endif
  UncheckedReads(const UncheckedReads&) = delete;
  UncheckedReads& operator=(const UncheckedReads&) = delete;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_UNCHECKED_READS_H_
