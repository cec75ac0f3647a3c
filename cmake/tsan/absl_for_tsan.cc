// Tells ThreadSanitizer how absl synchronises. Debian's absl is not instrumented, so without this file TSan sees neither
// that a mutex was locked nor that a notification was waited for, and reports races where there are none.
//
// Linked into every executable of a TSan build and into nothing else. The definitions here come before those of absl's
// shared libraries, for our code and for every library, and call them.
//
// Limits: a Mutex that is awaited while it is held for reading counts as held for writing.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" char __executable_start, etext;  // made by the linker

namespace {

// The definition that this file hides.
template <typename Function>
Function* Real(const char* mangled) {
  void* found = dlsym(RTLD_NEXT, mangled);
  if (found == nullptr) {
    std::fprintf(stderr, "absl_for_tsan.cc: another absl than Debian 12's, it lacks %s\n", mangled);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define SLUICE_REAL(type, mangled) static const auto real = Real<type>("_ZN4absl7debian3" mangled)
#define SLUICE_REAL_CONST(type, mangled) static const auto real = Real<type>("_ZNK4absl7debian3" mangled)

// Between the two calls TSan looks neither at memory nor at synchronisation: absl's own, and the conditions that it
// evaluates on behalf of other threads. Calls from inside absl's are part of the outermost one.
thread_local int calls = 0;

class Locking {
 public:
  explicit Locking(void* mutex, unsigned flags = 0) : mutex_(mutex), flags_(flags) {
    if (calls++ == 0) __tsan_mutex_pre_lock(mutex_, flags_);
  }
  ~Locking() {
    if (--calls == 0) __tsan_mutex_post_lock(mutex_, flags_, 0);
  }
  void Failed() { flags_ |= __tsan_mutex_try_lock_failed; }

 private:
  void* const mutex_;
  unsigned flags_;
};

class Unlocking {
 public:
  explicit Unlocking(void* mutex, unsigned flags = 0) : mutex_(mutex), flags_(flags) {
    if (calls++ == 0) __tsan_mutex_pre_unlock(mutex_, flags_);
  }
  ~Unlocking() {
    if (--calls == 0) __tsan_mutex_post_unlock(mutex_, flags_);
  }

 private:
  void* const mutex_;
  const unsigned flags_;
};

// A wait: given up, then held again.
class Waiting {
 public:
  explicit Waiting(void* mutex) : locking_(GiveUp(mutex)) {}

 private:
  static void* GiveUp(void* mutex) {
    Unlocking unlocking(mutex);
    return mutex;
  }
  Locking locking_;
};

// Whether code of this program calls, not a library's, whose hand-overs between threads TSan does not see.
bool IsOurs(const void* caller) {
  return caller >= &__executable_start && caller < &etext;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() {
  SLUICE_REAL(void(Mutex*), "5MutexD1Ev");
  if (IsOurs(__builtin_return_address(0))) __tsan_mutex_destroy(this, 0);
  real(this);
}

void Mutex::Lock() {
  SLUICE_REAL(void(Mutex*), "5Mutex4LockEv");
  Locking locking(this);
  real(this);
}

void Mutex::Unlock() {
  SLUICE_REAL(void(Mutex*), "5Mutex6UnlockEv");
  Unlocking unlocking(this);
  real(this);
}

bool Mutex::TryLock() {
  SLUICE_REAL(bool(Mutex*), "5Mutex7TryLockEv");
  Locking locking(this, __tsan_mutex_try_lock);
  const bool locked = real(this);
  if (!locked) locking.Failed();
  return locked;
}

void Mutex::ReaderLock() {
  SLUICE_REAL(void(Mutex*), "5Mutex10ReaderLockEv");
  Locking locking(this, __tsan_mutex_read_lock);
  real(this);
}

void Mutex::ReaderUnlock() {
  SLUICE_REAL(void(Mutex*), "5Mutex12ReaderUnlockEv");
  Unlocking unlocking(this, __tsan_mutex_read_lock);
  real(this);
}

bool Mutex::ReaderTryLock() {
  SLUICE_REAL(bool(Mutex*), "5Mutex13ReaderTryLockEv");
  Locking locking(this, __tsan_mutex_read_lock | __tsan_mutex_try_lock);
  const bool locked = real(this);
  if (!locked) locking.Failed();
  return locked;
}

void Mutex::LockWhen(const Condition& condition) {
  SLUICE_REAL(void(Mutex*, const Condition&), "5Mutex8LockWhenERKNS0_9ConditionE");
  Locking locking(this);
  real(this, condition);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Duration), "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  Locking locking(this);
  return real(this, condition, timeout);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Time), "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Locking locking(this);
  return real(this, condition, deadline);
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  SLUICE_REAL(void(Mutex*, const Condition&), "5Mutex14ReaderLockWhenERKNS0_9ConditionE");
  Locking locking(this, __tsan_mutex_read_lock);
  real(this, condition);
}

bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, Duration timeout) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Duration),
              "5Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  Locking locking(this, __tsan_mutex_read_lock);
  return real(this, condition, timeout);
}

bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, Time deadline) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Time), "5Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Locking locking(this, __tsan_mutex_read_lock);
  return real(this, condition, deadline);
}

void Mutex::Await(const Condition& condition) {
  SLUICE_REAL(void(Mutex*, const Condition&), "5Mutex5AwaitERKNS0_9ConditionE");
  Waiting waiting(this);
  real(this, condition);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Duration), "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  Waiting waiting(this);
  return real(this, condition, timeout);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  SLUICE_REAL(bool(Mutex*, const Condition&, Time), "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Waiting waiting(this);
  return real(this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  SLUICE_REAL(void(CondVar*, Mutex*), "7CondVar4WaitEPNS0_5MutexE");
  Waiting waiting(mutex);
  real(this, mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  SLUICE_REAL(bool(CondVar*, Mutex*, Duration), "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  Waiting waiting(mutex);
  return real(this, mutex, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  SLUICE_REAL(bool(CondVar*, Mutex*, Time), "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  Waiting waiting(mutex);
  return real(this, mutex, deadline);
}

// Notification::HasBeenNotified is inline and reads an atomic; the write to it is in the library.
void Notification::Notify() {
  SLUICE_REAL(void(Notification*), "12Notification6NotifyEv");
  __tsan_release(&notified_yet_);
  real(this);
}

void Notification::WaitForNotification() const {
  SLUICE_REAL_CONST(void(const Notification*), "12Notification19WaitForNotificationEv");
  real(this);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  SLUICE_REAL_CONST(bool(const Notification*, Duration),
                    "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = real(this, timeout);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  SLUICE_REAL_CONST(bool(const Notification*, Time), "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
  const bool notified = real(this, deadline);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

bool BlockingCounter::DecrementCount() {
  SLUICE_REAL(bool(BlockingCounter*), "15BlockingCounter14DecrementCountEv");
  __tsan_release(this);
  return real(this);
}

void BlockingCounter::Wait() {
  SLUICE_REAL(void(BlockingCounter*), "15BlockingCounter4WaitEv");
  real(this);
  __tsan_acquire(this);
}

// A status is shared by reference count: references are counted up inline and down in the library.
void Status::UnrefNonInlined(uintptr_t rep) {
  SLUICE_REAL(void(uintptr_t), "6Status15UnrefNonInlinedEm");
  void* const counted = RepToPointer(rep);
  __tsan_release(counted);
  __tsan_acquire(counted);  // the last one deletes it
  real(rep);
}

ABSL_NAMESPACE_END
}  // namespace absl
