#include "mccl/config.h"

#include <memory>

#include "c_api/handles.h"
#include "mccl/c.h"

using namespace mccl::c_api;

mccl_status mccl_config_defaults(mccl_config** config) noexcept {
  return guarded([&] {
    clear("mccl_config_defaults", "config", config);
    hand_out(config, mccl::Config());
  });
}

mccl_status mccl_config_from_environment(mccl_config** config) noexcept {
  return guarded([&] {
    clear("mccl_config_from_environment", "config", config);
    hand_out(config, mccl::Config::from_environment());
  });
}

mccl_status mccl_config_set(mccl_config* config, const char* name, const char* value) noexcept {
  constexpr const char* kCall = "mccl_config_set";
  return guarded([&] {
    checked(kCall, "config", config)
        .value.set(text_of(kCall, "name", name), text_of(kCall, "value", value));
  });
}

mccl_status mccl_config_get(const mccl_config* config, const char* name, char* text,
                            size_t capacity, size_t* length) noexcept {
  constexpr const char* kCall = "mccl_config_get";
  return guarded([&] {
    const mccl::Config& settings = checked(kCall, "config", config).value;
    copy_text(kCall, settings.get(text_of(kCall, "name", name)), text, capacity, length);
  });
}

mccl_status mccl_config_merge_json(mccl_config* config, const char* json,
                                   const char* origin) noexcept {
  constexpr const char* kCall = "mccl_config_merge_json";
  return guarded([&] {
    checked(kCall, "config", config)
        .value.merge_json(text_of(kCall, "json", json), text_of(kCall, "origin", origin));
  });
}

void mccl_config_destroy(mccl_config* config) noexcept { destroy("mccl_config_destroy", config); }
