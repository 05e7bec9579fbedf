#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "c_api/c_test.h"

void c_config_set_and_get(void) {
  mccl_config* config = NULL;
  char text[64] = "?";
  size_t length = 99;
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_OK(mccl_config_get(config, "port_base", text, sizeof text, &length));
  CHECK(strcmp(text, "29600") == 0 && length == 5);
  CHECK_OK(mccl_config_set(config, "MCCL_PORT_BASE", "31000"));
  CHECK_OK(mccl_config_set(config, "job_key", "a secret"));
  CHECK_OK(mccl_config_get(config, "port_base", text, sizeof text, NULL));
  CHECK(strcmp(text, "31000") == 0);
  CHECK_OK(mccl_config_get(config, "listen_addr", text, sizeof text, &length));
  CHECK(strcmp(text, "") == 0 && length == 0);
  mccl_config_destroy(config);
}

void c_config_errors_name_the_fault(void) {
  mccl_config* config = NULL;
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_REFUSED(mccl_config_set(config, "prot_base", "1"), "port_base");
  CHECK_REFUSED(mccl_config_set(config, "port_base", "many"), "0 to 65535");
  CHECK_REFUSED(mccl_config_set(config, "port_base", NULL), "value is NULL");
  CHECK_REFUSED(mccl_config_set(config, NULL, "1"), "name is NULL");
  mccl_config_destroy(config);

  setenv("MCCL_TIMEOUTS", "5", 1);
  config = (mccl_config*)&config; /* a failure must set it to NULL */
  CHECK_REFUSED(mccl_config_from_environment(&config), "MCCL_TIMEOUT");
  CHECK(config == NULL);
  unsetenv("MCCL_TIMEOUTS");

  setenv("MCCL_TIMEOUT", "12", 1);
  if (CHECK_OK(mccl_config_from_environment(&config))) {
    char text[8] = "";
    CHECK_OK(mccl_config_get(config, "timeout", text, sizeof text, NULL));
    CHECK_TEXT(text, "12");
  }
  unsetenv("MCCL_TIMEOUT");
  mccl_config_destroy(config);
}

void c_config_text_has_to_fit(void) {
  mccl_config* config = NULL;
  char text[6] = "?";
  size_t length = 0;
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_OK(mccl_config_get(config, "port_base", NULL, 0, &length));
  CHECK(length == 5);
  CHECK_OK(mccl_config_get(config, "port_base", text, 6, NULL));
  CHECK_STATUS(mccl_config_get(config, "port_base", text, 5, &length), MCCL_ERROR_NO_ROOM);
  CHECK_TEXT(mccl_last_error(), "need 6 bytes, but the buffer has 5");
  CHECK(text[0] == '\0' && length == 5);
  CHECK_REFUSED(mccl_config_get(config, "port_base", NULL, 6, &length), "text is NULL");
  CHECK_REFUSED(mccl_config_get(config, "port_base", NULL, 0, NULL), "length");
  mccl_config_destroy(config);
}

void c_config_merged_json(void) {
  mccl_config* config = NULL;
  char text[32] = "";
  CHECK_OK(mccl_config_defaults(&config));
  CHECK_OK(mccl_config_merge_json(config, "{\"port_base\": 1234}", "here"));
  CHECK_OK(mccl_config_get(config, "port_base", text, sizeof text, NULL));
  CHECK_TEXT(text, "1234");
  CHECK_REFUSED(mccl_config_merge_json(config, "{\"port_base\": ", "here"), "here");
  CHECK_REFUSED(mccl_config_merge_json(config, NULL, "here"), "json is NULL");
  CHECK_REFUSED(mccl_config_merge_json(config, "{}", NULL), "origin is NULL");
  mccl_config_destroy(config);
}
