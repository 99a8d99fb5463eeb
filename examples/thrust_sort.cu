// Thrust: sort, sort by key, a transform and a reduction.
#define EXAMPLE "thrust_sort"
#include "common/check.h"

#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <algorithm>

struct Mix {
    __host__ __device__ unsigned operator()(unsigned v) const { return v * 2654435761u; }
};

int main() {
    const int n = 20000;
    Random random(12);
    std::vector<unsigned> keys(n);
    for (auto& k : keys) k = random.below(5000);
    thrust::device_vector<unsigned> dkeys(keys.begin(), keys.end());
    thrust::device_vector<int> dorder(n);
    thrust::sequence(dorder.begin(), dorder.end());
    thrust::stable_sort_by_key(dkeys.begin(), dkeys.end(), dorder.begin());
    std::vector<int> order(n), expected(n);
    thrust::copy(dorder.begin(), dorder.end(), order.begin());
    for (int i = 0; i < n; i++) expected[i] = i;
    std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    for (int i = 0; i < n; i++)
        REQUIRE(order[i] == expected[i], "place %d holds %d instead of %d", i, order[i], expected[i]);

    std::vector<float> numbers(n), sorted(n);
    for (auto& v : numbers) v = random.unit() - 0.5f;
    thrust::device_vector<float> dnumbers(numbers.begin(), numbers.end());
    thrust::sort(dnumbers.begin(), dnumbers.end(), thrust::greater<float>());
    thrust::copy(dnumbers.begin(), dnumbers.end(), sorted.begin());
    std::sort(numbers.begin(), numbers.end(), std::greater<float>());
    for (int i = 0; i < n; i++) REQUIRE(sorted[i] == numbers[i], "place %d holds %g instead of %g", i, sorted[i], numbers[i]);

    thrust::transform(dkeys.begin(), dkeys.end(), dkeys.begin(), Mix());
    unsigned sum = thrust::reduce(dkeys.begin(), dkeys.end(), 0u), host_sum = 0;
    for (auto k : keys) host_sum += Mix()(k);
    REQUIRE(sum == host_sum, "sum is %u instead of %u", sum, host_sum);
    return ok("%d keys", n);
}
