#include "transport/rdma/verbs_library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>

#include "transport/rdma/verbs_symbols.h"

namespace mccl::transport::rdma {
namespace {

/// Retransmission on rc: 4.096 us << 17 is 0.54 s; after seven retries, about 4 s, the device gives
/// up. A shorter time has no use: TCP already reports dead peers, an interruption of a second must
/// not end a job, and software devices make errors when they retransmit packets that were only late
/// (docs/rdma.md).
constexpr std::uint8_t kTimeout = 17;
constexpr std::uint8_t kRetries = 7;
/// 7 means retry forever. Credits ensure that a receive is posted, except briefly while a repeated
/// message occupies it.
constexpr std::uint8_t kRnrRetries = 7;
constexpr std::uint8_t kRnrTimer = 12;
constexpr std::uint8_t kHops = 64;
constexpr int kMostGids = 64;

/// A call that returns null should have set errno, but not every library does.
int code_of_null() { return errno != 0 ? errno : ENOMEM; }
int code_of(int result) { return result < 0 ? (errno != 0 ? errno : EIO) : result; }

int mtu_code(int bytes) {
  const auto width = static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(bytes, 256))));
  return std::clamp(width - 8, 1, 5);
}

void set_non_blocking(int descriptor) {
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

struct Shared {
  const Symbols* symbols;
  std::string device;
  [[noreturn]] void fail(const char* call, int code) const { throw VerbsError(call, device, code); }
};

class LibraryChannel final : public Channel {
 public:
  LibraryChannel(Shared shared, abi::Context* context) : shared_(std::move(shared)) {
    const Symbols& s = *shared_.symbols;
    if (!s.create_comp_channel || !s.get_cq_event || !s.ack_cq_events || !s.destroy_comp_channel)
      shared_.fail("ibv_create_comp_channel", ENOSYS);
    errno = 0;
    channel_ = s.create_comp_channel(context);
    if (!channel_) shared_.fail("ibv_create_comp_channel", code_of_null());
    set_non_blocking(channel_->fd);
  }
  ~LibraryChannel() override { shared_.symbols->destroy_comp_channel(channel_); }
  int descriptor() const override { return channel_->fd; }
  void drain() override {
    abi::Queue* queue = nullptr;
    void* unused = nullptr;
    while (shared_.symbols->get_cq_event(channel_, &queue, &unused) == 0)
      shared_.symbols->ack_cq_events(queue, 1);
  }
  abi::Channel* get() { return channel_; }

 private:
  const Shared shared_;
  abi::Channel* channel_ = nullptr;
};

class LibraryQueue final : public CompletionQueue {
 public:
  LibraryQueue(Shared shared, abi::Context* context, int entries, LibraryChannel* channel)
      : shared_(std::move(shared)) {
    errno = 0;
    queue_ = shared_.symbols->create_cq(context, entries, nullptr,
                                        channel ? channel->get() : nullptr, 0);
    if (!queue_) shared_.fail("ibv_create_cq", code_of_null());
  }
  ~LibraryQueue() override { shared_.symbols->destroy_cq(queue_); }

  int poll(std::span<Completion> into) override {
    abi::Wc found[kMostAtOnce];
    const int wanted = static_cast<int>(std::min(into.size(), std::size(found)));
    const int count = queue_->context->ops.poll_cq(queue_, wanted, found);
    if (count < 0) return count == -1 ? -EIO : count;
    for (int i = 0; i < count; ++i) {
      into[static_cast<std::size_t>(i)] = {found[i].wr_id, found[i].status, found[i].byte_len};
    }
    return count;
  }
  int notify() override { return code_of(queue_->context->ops.req_notify_cq(queue_, 0)); }
  abi::Queue* get() { return queue_; }

 private:
  static constexpr std::size_t kMostAtOnce = 16;
  const Shared shared_;
  abi::Queue* queue_ = nullptr;
};

class LibraryRegion final : public Region {
 public:
  LibraryRegion(Shared shared, abi::Domain* domain, std::span<std::byte> memory, int access)
      : shared_(std::move(shared)) {
    errno = 0;
    memory_ = shared_.symbols->reg_mr(domain, memory.data(), memory.size(), access);
    if (!memory_) shared_.fail("ibv_reg_mr", code_of_null());
  }
  ~LibraryRegion() override { shared_.symbols->dereg_mr(memory_); }
  std::uint32_t key() const override { return memory_->lkey; }

 private:
  const Shared shared_;
  abi::Memory* memory_ = nullptr;
};

class LibraryPair final : public QueuePair {
 public:
  LibraryPair(Shared shared, abi::Domain* domain, const QueuePairOptions& options,
              LibraryQueue& queue)
      : shared_(std::move(shared)), service_(options.service), port_(options.port) {
    abi::QpInitAttr attr = {};
    attr.send_cq = attr.recv_cq = queue.get();
    attr.cap = {options.sends, options.receives, options.pieces, 1, options.inline_bytes};
    attr.qp_type = service_ == Service::rc ? abi::kTypeRc : abi::kTypeUc;
    attr.sq_sig_all = 1;
    errno = 0;
    pair_ = shared_.symbols->create_qp(domain, &attr);
    if (!pair_ && errno == EINVAL && options.inline_bytes != 0) {
      attr.cap = {options.sends, options.receives, options.pieces, 1, 0};
      pair_ = shared_.symbols->create_qp(domain, &attr);
    }
    if (!pair_) shared_.fail("ibv_create_qp", code_of_null());
    inline_bytes_ = std::min(attr.cap.max_inline_data, options.inline_bytes);
    try {
      initialise();
    } catch (...) {
      shared_.symbols->destroy_qp(pair_);
      throw;
    }
  }
  ~LibraryPair() override { shared_.symbols->destroy_qp(pair_); }

  std::uint32_t number() const override { return pair_->qp_num; }
  std::uint32_t inline_bytes() const override { return inline_bytes_; }

  void connect(const Route& route) override {
    receive_from(route);
    abi::QpAttr attr = {};
    attr.qp_state = abi::kReadyToSend;
    attr.sq_psn = route.our_first;
    attr.timeout = kTimeout;
    attr.retry_cnt = kRetries;
    attr.rnr_retry = kRnrRetries;
    attr.max_rd_atomic = 1;
    namespace mask = abi::mask;
    const int of_rc = mask::kTimeout | mask::kRetries | mask::kRnrRetries | mask::kMaxRdAtomic;
    modify(attr, mask::kState | mask::kSqPsn | (service_ == Service::rc ? of_rc : 0),
           "ibv_modify_qp (to ready to send)");
  }

  int post_send(std::uint64_t id, std::span<const Piece> pieces, bool is_inline) override {
    abi::Sge gather[kMostPieces];
    abi::SendWr request = {};
    for (const Piece& piece : pieces) gather[request.num_sge++] = sge_of(piece);
    request.wr_id = id;
    request.sg_list = gather;
    request.opcode = abi::kSend;
    request.send_flags = abi::kSignaled | (is_inline ? abi::kInline : 0);
    abi::SendWr* bad = nullptr;
    return code_of(pair_->context->ops.post_send(pair_, &request, &bad));
  }
  int post_receive(std::uint64_t id, const Piece& into) override {
    abi::Sge place = sge_of(into);
    abi::RecvWr request = {id, nullptr, &place, 1};
    abi::RecvWr* bad = nullptr;
    return code_of(pair_->context->ops.post_recv(pair_, &request, &bad));
  }

 private:
  static constexpr std::size_t kMostPieces = 2;

  static abi::Sge sge_of(const Piece& piece) {
    return {reinterpret_cast<std::uint64_t>(piece.data), piece.bytes, piece.key};
  }
  void modify(abi::QpAttr& attr, int mask, const char* call) {
    errno = 0;
    const int error = code_of(shared_.symbols->modify_qp(pair_, &attr, mask));
    if (error != 0) shared_.fail(call, error);
  }
  void initialise() {
    abi::QpAttr attr = {};
    attr.qp_state = abi::kInit;
    attr.port_num = static_cast<std::uint8_t>(port_);
    attr.qp_access_flags = abi::kAccessLocalWrite;
    modify(attr, abi::mask::kState | abi::mask::kPkeyIndex | abi::mask::kPort | abi::mask::kAccess,
           "ibv_modify_qp (to initialised)");
  }
  void receive_from(const Route& route) {
    abi::QpAttr attr = {};
    attr.qp_state = abi::kReadyToReceive;
    attr.path_mtu = mtu_code(route.mtu_bytes);
    attr.dest_qp_num = route.queue_pair;
    attr.rq_psn = route.their_first;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = kRnrTimer;
    attr.ah_attr.dlid = route.lid;
    attr.ah_attr.port_num = static_cast<std::uint8_t>(port_);
    attr.ah_attr.is_global = route.by_gid ? 1 : 0;
    if (route.by_gid) {
      std::copy(route.gid.begin(), route.gid.end(), attr.ah_attr.grh.dgid.raw);
      attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(route.own_gid);
      attr.ah_attr.grh.hop_limit = kHops;
    }
    namespace mask = abi::mask;
    const int always = mask::kState | mask::kAv | mask::kPathMtu | mask::kDestQpn | mask::kRqPsn;
    const int of_rc = mask::kMaxDestRdAtomic | mask::kMinRnrTimer;
    modify(attr, always | (service_ == Service::rc ? of_rc : 0),
           "ibv_modify_qp (to ready to receive)");
  }

  const Shared shared_;
  const Service service_;
  const int port_;
  abi::Pair* pair_ = nullptr;
  std::uint32_t inline_bytes_ = 0;
};

class LibraryDomain final : public Domain {
 public:
  LibraryDomain(Shared shared, abi::Context* context) : shared_(std::move(shared)) {
    errno = 0;
    domain_ = shared_.symbols->alloc_pd(context);
    if (!domain_) shared_.fail("ibv_alloc_pd", code_of_null());
  }
  ~LibraryDomain() override { shared_.symbols->dealloc_pd(domain_); }
  std::unique_ptr<Region> register_memory(std::span<std::byte> memory) override {
    return std::make_unique<LibraryRegion>(shared_, domain_, memory, abi::kAccessLocalWrite);
  }
  std::unique_ptr<Region> register_to_send(std::span<const std::byte> memory) override {
    // Without write access, pages that the process may not write to can be registered too.
    const std::span<std::byte> read_only{const_cast<std::byte*>(memory.data()), memory.size()};
    return std::make_unique<LibraryRegion>(shared_, domain_, read_only, abi::kAccessNone);
  }
  std::unique_ptr<QueuePair> make_queue_pair(const QueuePairOptions& options,
                                             CompletionQueue& queue) override {
    return std::make_unique<LibraryPair>(shared_, domain_, options,
                                         dynamic_cast<LibraryQueue&>(queue));
  }

 private:
  const Shared shared_;
  abi::Domain* domain_ = nullptr;
};

class LibraryContext final : public Context {
 public:
  LibraryContext(Shared shared, abi::Context* context)
      : shared_(std::move(shared)), context_(context) {
    set_non_blocking(context_->async_fd);
  }
  ~LibraryContext() override { shared_.symbols->close_device(context_); }

  Limits limits() override {
    abi::DeviceAttr attr = {};
    const int error = code_of(shared_.symbols->query_device(context_, &attr));
    if (error != 0) shared_.fail("ibv_query_device", error);
    return {.regions = attr.max_mr,
            .queue_pairs = attr.max_qp,
            .requests = attr.max_qp_wr,
            .completions = attr.max_cqe,
            .ports = attr.phys_port_cnt,
            .lends = fork_does_no_harm()};
  }

  Port port(int number) override {
    const abi::PortAttr attr = attributes_of(number);
    constexpr const char* kStates[] = {"PORT_NOP",   "PORT_DOWN",   "PORT_INIT",
                                       "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"};
    const auto state = static_cast<std::size_t>(attr.state);
    return {.number = number,
            .active = attr.state == abi::kPortActive,
            .state = state < std::size(kStates) ? kStates[state] : std::to_string(attr.state),
            .layer = attr.link_layer == 1   ? LinkLayer::infiniband
                     : attr.link_layer == 2 ? LinkLayer::ethernet
                                            : LinkLayer::unknown,
            .mtu_bytes = 128 << std::clamp(attr.active_mtu, 1, 5),
            .lid = attr.lid,
            .message_bytes = attr.max_msg_sz};
  }

  std::vector<Gid> gids(int port) override {
    const int length = attributes_of(port).gid_tbl_len;
    std::vector<Gid> found =
        shared_.symbols->query_gid_table ? gids_with_types(port, length) : std::vector<Gid>();
    return found.empty() ? gids_one_by_one(port, length) : found;
  }

  std::unique_ptr<Domain> make_domain() override {
    return std::make_unique<LibraryDomain>(shared_, context_);
  }
  std::unique_ptr<Channel> make_channel() override {
    return std::make_unique<LibraryChannel>(shared_, context_);
  }
  std::unique_ptr<CompletionQueue> make_queue(int entries, Channel* channel) override {
    return std::make_unique<LibraryQueue>(shared_, context_, entries,
                                          dynamic_cast<LibraryChannel*>(channel));
  }

  int event_descriptor() const override {
    return shared_.symbols->get_async_event ? context_->async_fd : -1;
  }
  std::optional<DeviceEvent> next_event() override {
    const Symbols& s = *shared_.symbols;
    abi::AsyncEvent event = {};
    if (!s.get_async_event || s.get_async_event(context_, &event) != 0) return std::nullopt;
    DeviceEvent told;
    told.text = s.event_type_str ? s.event_type_str(event.event_type)
                                 : fmt::format("event {}", event.event_type);
    const int type = event.event_type;
    if (type == abi::kEventDeviceFatal || type == abi::kEventCqErr) {
      // A failed completion queue reports nothing more, and the event does not say which queue
      // failed.
      told.kind = DeviceEvent::Kind::device_gone;
    } else if (type == abi::kEventQpFatal || type == abi::kEventQpReqErr ||
               type == abi::kEventQpAccessErr) {
      told.kind = DeviceEvent::Kind::pair_failed;
      told.pair = event.element.pair->qp_num;
    } else if (type == abi::kEventPortErr) {
      told.kind = DeviceEvent::Kind::port_down;
      told.port = event.element.port_num;
      told.text = fmt::format("port {} went down", told.port);
    }
    if (s.ack_async_event) s.ack_async_event(&event);
    return told;
  }

  void abandon() noexcept override {
    ::close(context_->async_fd);
    ::close(context_->cmd_fd);
  }

 private:
  /// True if the kernel copies registered pages on fork instead of sharing them with the child.
  bool fork_does_no_harm() const {
    const Symbols& s = *shared_.symbols;
    return s.is_fork_initialized && s.is_fork_initialized() == abi::kForkUnneeded;
  }

  abi::PortAttr attributes_of(int port) {
    abi::PortAttr attr = {};
    const int error =
        code_of(shared_.symbols->query_port(context_, static_cast<std::uint8_t>(port), &attr));
    if (error != 0) shared_.fail("ibv_query_port", error);
    return attr;
  }

  std::vector<Gid> gids_with_types(int port, int length) {
    std::vector<abi::GidEntry> entries(static_cast<std::size_t>(std::max(length, 1)) * 4);
    const ssize_t count = shared_.symbols->query_gid_table(context_, entries.data(), entries.size(),
                                                           0, sizeof(abi::GidEntry));
    std::vector<Gid> found;
    for (ssize_t i = 0; i < count; ++i) {
      const abi::GidEntry& entry = entries[static_cast<std::size_t>(i)];
      constexpr GidType kTypes[] = {GidType::infiniband, GidType::roce_v1, GidType::roce_v2};
      if (entry.port_num != static_cast<std::uint32_t>(port)) continue;
      add(found, static_cast<int>(entry.gid_index),
          entry.gid_type < std::size(kTypes) ? kTypes[entry.gid_type] : GidType::unknown,
          entry.gid);
    }
    return found;
  }

  std::vector<Gid> gids_one_by_one(int port, int length) {
    std::vector<Gid> found;
    for (int index = 0; index < std::min(length, kMostGids); ++index) {
      abi::GidUnion gid = {};
      const int error =
          shared_.symbols->query_gid(context_, static_cast<std::uint8_t>(port), index, &gid);
      if (error == 0) add(found, index, GidType::unknown, gid);
    }
    return found;
  }

  static void add(std::vector<Gid>& gids, int index, GidType type, const abi::GidUnion& raw) {
    Gid gid{.index = index, .type = type, .bytes = {}};
    std::copy(std::begin(raw.raw), std::end(raw.raw), gid.bytes.begin());
    if (std::any_of(gid.bytes.begin(), gid.bytes.end(), [](auto byte) { return byte != 0; }))
      gids.push_back(gid);
  }

  const Shared shared_;
  abi::Context* const context_;
};

class VerbsLibrary final : public Verbs {
 public:
  explicit VerbsLibrary(std::unique_ptr<Symbols> symbols) : symbols_(std::move(symbols)) {
    // Without this call, copy-on-write after a fork could give the parent different pages than its
    // devices use.
    if (symbols_->fork_init) (void)symbols_->fork_init();
  }

  std::vector<std::string> devices() override {
    std::vector<std::string> names;
    for_each([&](void* device) {
      names.emplace_back(symbols_->get_device_name(device));
      return false;
    });
    return names;
  }

  std::unique_ptr<Context> open(const std::string& name) override {
    abi::Context* context = nullptr;
    errno = 0;
    const bool found = for_each([&](void* device) {
      if (name != symbols_->get_device_name(device)) return false;
      context = symbols_->open_device(device);
      return true;
    });
    if (!context) throw VerbsError("ibv_open_device", name, found ? code_of_null() : ENODEV);
    return std::make_unique<LibraryContext>(Shared{symbols_.get(), name}, context);
  }

 private:
  /// Visits the devices until `visit` returns true.
  template <typename Visit>
  bool for_each(Visit visit) {
    int count = 0;
    void** list = symbols_->get_device_list(&count);
    bool found = false;
    for (int i = 0; list && i < count && !found; ++i) found = visit(list[i]);
    const int error = errno;
    if (list) symbols_->free_device_list(list);
    errno = error;
    return found;
  }

  const std::unique_ptr<Symbols> symbols_;
};

struct Loaded {
  std::shared_ptr<Verbs> verbs;
  std::string why;
};

Loaded load() {
  Loaded loaded;
  if (auto symbols = load_symbols(loaded.why))
    loaded.verbs = std::make_shared<VerbsLibrary>(std::move(symbols));
  return loaded;
}

}  // namespace

std::shared_ptr<Verbs> load_verbs(std::string& why) {
  static const Loaded loaded = load();
  why = loaded.why;
  return loaded.verbs;
}

}  // namespace mccl::transport::rdma
