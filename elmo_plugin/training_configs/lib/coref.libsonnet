// Coreference: the span-ranking model of Lee et al. (2017) over word vectors, character convolutions and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  // Files of CoNLL-2012, or folders of them, called `train`, `dev` and `test` in a folder.
  files:: data_files.files,

  // Lee et al.: the learning rate falls by a factor of 0.999 every 100 steps. AllenNLP's scheduler takes one
  // factor for each epoch, which has a step for each document.
  decay(num_documents):: { type: 'exponential', gamma: std.pow(0.999, num_documents / 100) },

  // word_vectors: a file or URL in GloVe's text format, of width word_dim; null starts them at random, and
  // tunes them.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=300,
    character_dim=8,
    num_character_filters=50,
    character_filter_widths=[3, 4, 5],
    rnn_size=200,
    feedforward_dims=[150, 150],
    feature_dim=20,
    max_antecedents=250,
    max_training_sentences=50,
    lexical_dropout=0.5,
    dropout=0.2,
    learning_rate=0.001,
    learning_rate_scheduler=self.decay(2802),
    num_epochs=150,
    patience=10,
  ):: {
    dataset_reader: {
      type: 'elmo_coref',
      token_indexers: words.indexers(lowercase=false)
                      + words.character_indexers(character_filter_widths)
                      + elmo.indexers,
    },

    model: {
      type: 'elmo_coref',
      text_encoder: {
        text_field_embedder: {
          token_embedders: words.embedders(word_vectors, word_dim, trainable=word_vectors == null)
                           + words.character_embedders(
                             character_dim, num_character_filters, character_filter_widths
                           ) + {
                             // Lee et al. scale all word vectors to length 1, AllenNLP those that are longer.
                             [if word_vectors != null then 'tokens']+: { max_norm: 1.0 },
                           },
        },
        elmo: elmo_part,
        // Widths follow from the embedders and from ELMo's placement.
        encoder: { type: 'lstm', hidden_size: rnn_size, bidirectional: true },
        dropout: lexical_dropout,
      },
      mention_feedforward: {
        num_layers: std.length(feedforward_dims),
        hidden_dims: feedforward_dims,
        activations: 'relu',
        dropout: dropout,
      },
      antecedent_scorer: {
        hidden_dims: feedforward_dims,
        feature_dim: feature_dim,
        dropout: dropout,
        max_antecedents: max_antecedents,
      },
      max_span_width: 10,
      spans_per_word: 0.4,
      max_training_sentences: max_training_sentences,
      width_dim: feature_dim,
      lexical_dropout: lexical_dropout,
      dropout: dropout,
      regularizer: elmo.regularizer(0.0),
      initializer: {
        regexes: [
          ['text_encoder\\.encoder\\..*weight_[ih]h', { type: 'orthogonal' }],
          ['^mention_(feedforward|score)\\..*weight$', { type: 'xavier_uniform' }],
          // All but the embedding of genres, whose row of the unknown genre stays zeros.
          [
            '^antecedent_scorer\\.(distance_embedding|speaker_embedding|first_layer|further_layers|score)\\..*weight$',
            { type: 'xavier_uniform' },
          ],
        ],
      },
    },

    // A document at a time.
    data_loader: { batch_size: 1, shuffle: true },
    validation_data_loader: { batch_sampler: { type: 'elmo_even', batch_size: 1, sorting_keys: ['speakers'] } },
    trainer: {
      optimizer: { type: 'adam', lr: learning_rate },
      learning_rate_scheduler: learning_rate_scheduler,
      grad_norm: 5.0,
    },
  } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+coref_f1'),
}
