//! What an answer costs.

use super::ModelConfig;
use crate::event::Usage;

/// Tokens that a price is for.
const TOKENS_PRICED: f64 = 1_000_000.0;

impl ModelConfig {
    /// The cost of an answer, in the provider's currency; none when the prices of input and output are not configured.
    /// Cached tokens without a price of their own cost what others do.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let (input, output) = (self.price_input?, self.price_output?);
        let parts = [
            (usage.input_tokens, input),
            (usage.cache_read_tokens, self.price_cache_read.unwrap_or(input)),
            (usage.cache_write_tokens, self.price_cache_write.unwrap_or(input)),
            (usage.output_tokens, output),
        ];
        Some(parts.into_iter().map(|(tokens, price)| priced(tokens, price)).sum())
    }
}

#[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
fn priced(tokens: u64, price: f64) -> f64 {
    tokens as f64 * price / TOKENS_PRICED
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage {
        input_tokens: 1_000_000,
        output_tokens: 500_000,
        cache_read_tokens: 2_000_000,
        cache_write_tokens: 4_000_000,
        total_tokens: 7_500_000,
    };

    #[test]
    fn each_kind_of_token_has_its_price() {
        let model = ModelConfig {
            price_input: Some(2.0),
            price_cache_read: Some(0.5),
            price_cache_write: Some(2.5),
            price_output: Some(8.0),
            ..ModelConfig::default()
        };
        assert_eq!(model.cost(&USAGE), Some(2.0 + 1.0 + 10.0 + 4.0));
    }

    #[test]
    fn without_prices_nothing_is_said_of_the_cost() {
        let model = ModelConfig { price_input: Some(1.0), ..ModelConfig::default() };
        assert_eq!(model.cost(&USAGE), None);
        let model = ModelConfig { price_output: Some(0.0), ..model };
        assert_eq!(model.cost(&USAGE), Some(7.0));
    }
}
