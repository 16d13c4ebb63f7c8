// RDMABATCH_EXPORT marks what librdmabatch.so shows; everything else is hidden.
#ifndef TF_RDMABATCH_CC_BASE_EXPORT_H_
#define TF_RDMABATCH_CC_BASE_EXPORT_H_

#define RDMABATCH_EXPORT __attribute__((visibility("default")))

#endif  // TF_RDMABATCH_CC_BASE_EXPORT_H_
