// The declarations of Apple's system headers that metal-cpp needs; Linux has none of these headers. Nothing
// is defined: the host side is compiled for its syntax only.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>

struct objc_object {};
class Protocol;
using SEL = struct objc_selector*;
using Class = struct objc_class*;

extern "C" {
SEL sel_registerName(const char* name);
void* objc_lookUpClass(const char* name);
void* objc_getProtocol(const char* name);
void objc_msgSend();
void objc_msgSend_stret();
void objc_msgSend_fpret();
}

using CFTimeInterval = double;
using IOSurfaceRef = struct IOSurface*;
using dispatch_queue_t = struct dispatch_queue*;
using dispatch_data_t = struct dispatch_data*;
using kern_return_t = int;
using task_id_token_t = unsigned;
