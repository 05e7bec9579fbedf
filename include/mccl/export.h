/* Marks the C functions, C++ functions and C++ classes (with their members and typeinfo) that
 * libmccl exports. The library is compiled with hidden visibility, so nothing else can be linked
 * from outside. */
#ifndef MCCL_EXPORT_H
#define MCCL_EXPORT_H

#define MCCL_API __attribute__((visibility("default")))

#endif
