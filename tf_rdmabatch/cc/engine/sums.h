// Sums and copies of blocks, with the widest vectors that this CPU has, chosen at run time.
//
// Data path: nothing allocates, blocks or fails. Any alignment. Operands do not overlap. What was
// written is ordered before all later stores. Calls on different memory may run at the same time.
#ifndef TF_RDMABATCH_CC_ENGINE_SUMS_H_
#define TF_RDMABATCH_CC_ENGINE_SUMS_H_

#include <cstddef>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/engine/dtype.h"

namespace rdmabatch {

// accumulator[i] += source[i] for `count` elements. Integers wrap around. float16 and bfloat16 are
// added in float32 and rounded to nearest even, which is what one correctly rounded addition gives;
// a NaN stays a NaN.
RDMABATCH_EXPORT void AddInto(DType dtype, void* accumulator, const void* source, size_t count);

// destination[i] = a[i] + b[i], for a destination that will not be read soon: written past the
// caches. Where the destination is one of the operands, AddInto is as fast.
RDMABATCH_EXPORT void SumStream(DType dtype, void* destination, const void* a, const void* b,
                                size_t count);

// memcpy for a destination that will not be read soon: written past the caches from 16 KiB on, so
// that what is warm stays warm and the destination is not read first.
RDMABATCH_EXPORT void CopyStream(void* destination, const void* source, size_t bytes);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_SUMS_H_
