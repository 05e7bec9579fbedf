#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/rdma/verbs/functions.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {
namespace {

using namespace abi;

/// Retransmission on rc: the interval is 4.096 us << 17, or 0.54 s; after seven retries, about 4 s,
/// the device gives up. An interruption of a second thus does not end a job. (The control
/// connections over TCP detect dead peers.) A short interval would also retransmit packets that are
/// only late, and software devices handle such retransmissions incorrectly (docs/rdma.md).
constexpr std::uint8_t kTimeout = 17;
constexpr std::uint8_t kRetries = 7;
/// Number of retries if the peer has no receive posted; 7 means forever. Credits ensure that a
/// receive is posted, except briefly while a repeated message occupies it.
constexpr std::uint8_t kRnrRetries = 7;
constexpr std::uint8_t kRnrTimer = 12;
constexpr std::uint8_t kHops = 64;
constexpr int kMostGids = 64;

int mtu_code(int bytes) {
  const auto width = static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(bytes, 256))));
  return std::clamp(width - 8, 1, 5);
}

void set_non_blocking(int descriptor) {
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

class LibraryChannel final : public CompletionChannel {
 public:
  LibraryChannel(const CheckedVerbs& calls, ibv_context* context)
      : verbs_(calls.verbs), channel_(make(calls, context)) {
    set_non_blocking(channel_->fd);
  }
  int descriptor() const override { return channel_->fd; }
  void drain() override {
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    while (verbs_.get_cq_event(channel_.get(), &queue, &unused) == 0)
      verbs_.ack_cq_events(queue, 1);
  }
  ibv_comp_channel* get() { return channel_.get(); }

 private:
  static Owned<ibv_comp_channel> make(const CheckedVerbs& calls, ibv_context* context) {
    const Functions& v = calls.verbs;
    if (!v.create_comp_channel || !v.get_cq_event || !v.ack_cq_events || !v.destroy_comp_channel)
      calls.fail("ibv_create_comp_channel", ENOSYS);
    return calls.make(v.create_comp_channel, v.destroy_comp_channel, context);
  }

  const Functions& verbs_;
  const Owned<ibv_comp_channel> channel_;
};

class LibraryRegion final : public MemoryRegion {
 public:
  explicit LibraryRegion(Owned<ibv_mr> region) : region_(std::move(region)) {}
  std::uint32_t key() const override { return region_->lkey; }

 private:
  const Owned<ibv_mr> region_;
};

class LibraryPair final : public QueuePair {
 public:
  LibraryPair(const CheckedVerbs& calls, ibv_pd* domain, const QueuePairOptions& options,
              LibraryChannel* channel)
      : calls_(calls),
        service_(options.service),
        port_(options.port),
        queue_(calls.make(calls.verbs.create_cq, calls.verbs.destroy_cq, domain->context,
                          static_cast<int>(options.sends + options.receives), nullptr,
                          channel ? channel->get() : nullptr, 0)),
        pair_(make_pair(domain, options)) {
    initialise();
  }

  std::uint32_t number() const override { return pair_->qp_num; }
  std::uint32_t inline_bytes() const override { return inline_bytes_; }

  void connect(const PairRoute& route) override {
    receive_from(route);
    ibv_qp_attr attr = {};
    attr.qp_state = kReadyToSend;
    attr.sq_psn = route.our_first;
    attr.timeout = kTimeout;
    attr.retry_cnt = kRetries;
    attr.rnr_retry = kRnrRetries;
    attr.max_rd_atomic = 1;
    const int of_rc = mask::kTimeout | mask::kRetries | mask::kRnrRetries | mask::kMaxRdAtomic;
    modify(attr, mask::kState | mask::kSqPsn | (service_ == Service::rc ? of_rc : 0),
           "ibv_modify_qp (to ready to send)");
  }

  int post_send(std::uint64_t id, std::span<const Piece> pieces, bool is_inline) override {
    ibv_sge gather[kMostPieces];
    ibv_send_wr request = {};
    for (const Piece& piece : pieces) gather[request.num_sge++] = sge_of(piece);
    request.wr_id = id;
    request.sg_list = gather;
    request.opcode = kSend;
    request.send_flags = kSignaled | (is_inline ? kInline : 0);
    ibv_send_wr* bad = nullptr;
    return code_of(pair_->context->ops.post_send(pair_.get(), &request, &bad));
  }
  int post_receive(std::uint64_t id, const Piece& into) override {
    ibv_sge place = sge_of(into);
    ibv_recv_wr request = {id, nullptr, &place, 1};
    ibv_recv_wr* bad = nullptr;
    return code_of(pair_->context->ops.post_recv(pair_.get(), &request, &bad));
  }

  int poll(std::span<Completion> into) override {
    ibv_wc found[kMostAtOnce];
    const int wanted = static_cast<int>(std::min(into.size(), std::size(found)));
    const int count = queue_->context->ops.poll_cq(queue_.get(), wanted, found);
    if (count < 0) return count == -1 ? -EIO : count;
    for (int i = 0; i < count; ++i) {
      into[static_cast<std::size_t>(i)] = {found[i].wr_id, found[i].status, found[i].byte_len};
    }
    return count;
  }
  int notify() override { return code_of(queue_->context->ops.req_notify_cq(queue_.get(), 0)); }

 private:
  static constexpr std::size_t kMostAtOnce = 16;
  static constexpr std::size_t kMostPieces = 2;

  static ibv_sge sge_of(const Piece& piece) {
    return {reinterpret_cast<std::uint64_t>(piece.data), piece.bytes, piece.key};
  }
  Owned<ibv_qp> make_pair(ibv_pd* domain, const QueuePairOptions& options) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = queue_.get();
    attr.cap = {options.sends, options.receives, options.pieces, 1, options.inline_bytes};
    attr.qp_type = service_ == Service::rc ? kTypeRc : kTypeUc;
    attr.sq_sig_all = 1;
    const auto make = [&] {
      auto pair = calls_.make(calls_.verbs.create_qp, calls_.verbs.destroy_qp, domain, &attr);
      inline_bytes_ = std::min(attr.cap.max_inline_data, options.inline_bytes);
      return pair;
    };
    try {
      return make();
    } catch (const VerbsError& error) {
      if (error.code() != EINVAL || options.inline_bytes == 0) throw;
    }
    attr.cap = {options.sends, options.receives, options.pieces, 1, 0};
    return make();
  }
  void modify(ibv_qp_attr& attr, int mask, const char* call) {
    errno = 0;
    calls_.check(call, calls_.verbs.modify_qp(pair_.get(), &attr, mask));
  }
  void initialise() {
    ibv_qp_attr attr = {};
    attr.qp_state = kInit;
    attr.port_num = static_cast<std::uint8_t>(port_);
    attr.qp_access_flags = kAccessLocalWrite;
    modify(attr, mask::kState | mask::kPkeyIndex | mask::kPort | mask::kAccess,
           "ibv_modify_qp (to initialised)");
  }
  void receive_from(const PairRoute& route) {
    ibv_qp_attr attr = {};
    attr.qp_state = kReadyToReceive;
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
    const int always = mask::kState | mask::kAv | mask::kPathMtu | mask::kDestQpn | mask::kRqPsn;
    const int of_rc = mask::kMaxDestRdAtomic | mask::kMinRnrTimer;
    modify(attr, always | (service_ == Service::rc ? of_rc : 0),
           "ibv_modify_qp (to ready to receive)");
  }

  const CheckedVerbs calls_;
  const Service service_;
  const int port_;
  std::uint32_t inline_bytes_ = 0;
  const Owned<ibv_cq> queue_;
  const Owned<ibv_qp> pair_;
};

class LibraryContext final : public VerbsContext {
 public:
  LibraryContext(CheckedVerbs calls, void* device)
      : calls_(std::move(calls)),
        context_(calls_.make(calls_.verbs.open_device, calls_.verbs.close_device, device)),
        domain_(calls_.make(calls_.verbs.alloc_pd, calls_.verbs.dealloc_pd, context_.get())) {
    set_non_blocking(context_->async_fd);
  }

  RegionLimits limits() override {
    ibv_device_attr attr = {};
    calls_.check("ibv_query_device", calls_.verbs.query_device(context_.get(), &attr));
    return {.regions = attr.max_mr, .lends = fork_does_no_harm()};
  }

  Port port(int number) override {
    const ibv_port_attr attr = attributes_of(number);
    constexpr const char* kStates[] = {"PORT_NOP",   "PORT_DOWN",   "PORT_INIT",
                                       "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"};
    constexpr LinkLayer kLayers[] = {LinkLayer::unknown, LinkLayer::infiniband,
                                     LinkLayer::ethernet};
    const auto state = static_cast<std::size_t>(attr.state);
    return {.number = number,
            .active = attr.state == kPortActive,
            .state = state < std::size(kStates) ? kStates[state] : std::to_string(attr.state),
            .layer = attr.link_layer < std::size(kLayers) ? kLayers[attr.link_layer]
                                                          : LinkLayer::unknown,
            .mtu_bytes = 128 << std::clamp(attr.active_mtu, 1, 5),
            .lid = attr.lid};
  }

  std::vector<Gid> gids(int port) override {
    const int length = attributes_of(port).gid_tbl_len;
    std::vector<Gid> found = gids_with_types(port, length);
    if (!found.empty()) return found;
    for (int index = 0; index < std::min(length, kMostGids); ++index) {
      ibv_gid gid = {};
      const auto number = static_cast<std::uint8_t>(port);
      if (calls_.verbs.query_gid(context_.get(), number, index, &gid) == 0)
        add(found, index, GidType::unknown, gid);
    }
    return found;
  }

  std::unique_ptr<MemoryRegion> register_memory(std::span<const std::byte> memory,
                                                Access access) override {
    return std::make_unique<LibraryRegion>(
        calls_.make(calls_.verbs.reg_mr, calls_.verbs.dereg_mr, domain_.get(),
                    const_cast<std::byte*>(memory.data()), memory.size(),
                    access == Access::write ? kAccessLocalWrite : kAccessNone));
  }
  std::unique_ptr<CompletionChannel> make_channel() override {
    return std::make_unique<LibraryChannel>(calls_, context_.get());
  }
  std::unique_ptr<QueuePair> make_queue_pair(const QueuePairOptions& options,
                                             CompletionChannel* channel) override {
    return std::make_unique<LibraryPair>(calls_, domain_.get(), options,
                                         dynamic_cast<LibraryChannel*>(channel));
  }

  int event_descriptor() const override {
    return calls_.verbs.get_async_event ? context_->async_fd : -1;
  }
  std::optional<DeviceEvent> next_event() override {
    const Functions& s = calls_.verbs;
    ibv_async_event event = {};
    if (!s.get_async_event || s.get_async_event(context_.get(), &event) != 0) return std::nullopt;
    DeviceEvent reported;
    reported.text = s.event_type_str ? s.event_type_str(event.event_type)
                                     : fmt::format("event {}", event.event_type);
    const int type = event.event_type;
    if (type == kEventDeviceFatal || type == kEventCqErr) {
      // A failed completion queue reports nothing more. The event does not say which queue failed,
      // so the whole device counts as gone.
      reported.kind = DeviceEvent::Kind::device_gone;
    } else if (type == kEventQpFatal || type == kEventQpReqErr || type == kEventQpAccessErr) {
      reported.kind = DeviceEvent::Kind::pair_failed;
      reported.pair = event.element.qp->qp_num;
    } else if (type == kEventPortErr) {
      reported.kind = DeviceEvent::Kind::port_down;
      reported.port = event.element.port_num;
      reported.text = fmt::format("port {} went down", reported.port);
    }
    if (s.ack_async_event) s.ack_async_event(&event);
    return reported;
  }

  void abandon() noexcept override {
    ::close(context_->async_fd);
    ::close(context_->cmd_fd);
  }

 private:
  /// True if a fork gives the child copies of registered pages, instead of sharing these pages.
  bool fork_does_no_harm() const {
    const auto& ask = calls_.verbs.is_fork_initialized;
    return ask && ask() == kForkUnneeded;
  }

  ibv_port_attr attributes_of(int port) {
    ibv_port_attr attr = {};
    calls_.check("ibv_query_port",
                 calls_.verbs.query_port(context_.get(), static_cast<std::uint8_t>(port), &attr));
    return attr;
  }

  std::vector<Gid> gids_with_types(int port, int length) {
    if (!calls_.verbs.query_gid_table) return {};
    std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(std::max(length, 1)) * 4);
    const ssize_t count = calls_.verbs.query_gid_table(context_.get(), entries.data(),
                                                       entries.size(), 0, sizeof(ibv_gid_entry));
    std::vector<Gid> found;
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
      constexpr GidType kTypes[] = {GidType::infiniband, GidType::roce_v1, GidType::roce_v2};
      if (entry.port_num != static_cast<std::uint32_t>(port)) continue;
      add(found, static_cast<int>(entry.gid_index),
          entry.gid_type < std::size(kTypes) ? kTypes[entry.gid_type] : GidType::unknown,
          entry.gid);
    }
    return found;
  }

  static void add(std::vector<Gid>& gids, int index, GidType type, const ibv_gid& raw) {
    Gid gid{.index = index, .type = type, .bytes = {}};
    std::copy(std::begin(raw.raw), std::end(raw.raw), gid.bytes.begin());
    if (gid.bytes != GidBytes{}) gids.push_back(gid);
  }

  const CheckedVerbs calls_;
  const Owned<ibv_context> context_;
  const Owned<ibv_pd> domain_;
};

class VerbsLibrary final : public Verbs {
 public:
  VerbsLibrary() {
    // Without this call, copy-on-write after a fork could give the parent other pages than those
    // that its devices access.
    if (verbs_.fork_init) (void)verbs_.fork_init();
  }

  std::vector<std::string> devices() override {
    std::vector<std::string> names;
    int count = 0;
    const DeviceList list = list_devices(count);
    for (int i = 0; list && i < count; ++i)
      names.emplace_back(verbs_.get_device_name(list.get()[i]));
    return names;
  }

  std::unique_ptr<VerbsContext> open(const std::string& name) override {
    int count = 0;
    const DeviceList list = list_devices(count);
    for (int i = 0; list && i < count; ++i) {
      if (name == verbs_.get_device_name(list.get()[i]))
        return std::make_unique<LibraryContext>(CheckedVerbs{verbs_, name}, list.get()[i]);
    }
    throw VerbsError("ibv_open_device", name, ENODEV);
  }

 private:
  using DeviceList = std::unique_ptr<void*, LibraryFunction<void(void**)>>;
  DeviceList list_devices(int& count) const {
    return {verbs_.get_device_list(&count), verbs_.free_device_list};
  }

  const Functions verbs_;
};

std::shared_ptr<Verbs> load(std::string& why) {
  try {
    return std::make_shared<VerbsLibrary>();
  } catch (const LoadError& error) {
    why = error.symbol().empty() ? fmt::format("there is no {} ({})", kFile, kAdvice)
                                 : fmt::format("{} lacks the function {}", kFile, error.symbol());
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<Verbs> load_verbs(std::string& why) {
  static std::string failure;
  static const std::shared_ptr<Verbs> verbs = load(failure);
  why = failure;
  return verbs;
}

}  // namespace mccl::transport::rdma
