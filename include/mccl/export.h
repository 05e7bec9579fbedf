/* Marks the C functions, C++ functions and C++ classes (with their members and typeinfo) that
 * libmccl exports. The library is compiled with hidden visibility, so programs cannot link to any
 * other symbol. */
#ifndef MCCL_EXPORT_H
#define MCCL_EXPORT_H

#define MCCL_API __attribute__((visibility("default")))

#endif
