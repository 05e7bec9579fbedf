// A profiler for tests: prints the ranges of the domain that a process creates, with their payload.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static char the_domain;

static nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  fprintf(stderr, "nvtx domain %s\n", name);
  return (nvtxDomainHandle_t)&the_domain;
}

static int NVTX_API push_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  (void)domain;
  fprintf(stderr, "nvtx range %s %llu\n", range->message.ascii,
          (unsigned long long)range->payload.ullValue);
  return 0;
}

static int NVTX_API pop_range(nvtxDomainHandle_t domain) {
  (void)domain;
  fprintf(stderr, "nvtx end\n");
  return 0;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const NvtxExportTableCallbacks* callbacks =
      (const NvtxExportTableCallbacks*)export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push_range;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop_range;
  return 1;
}
