// SRL: alternating highway LSTM layers over word vectors, the predicate's indicator and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  // Files, or folders of *.gold_conll files, called `train`, `dev` and `test` in a folder.
  files:: data_files.files,

  // word_vectors: a file or URL in GloVe's text format, of width word_dim; null starts them at random.
  // train_share, evaluation_share: of the predicates of the training data, and of the other files, drawn at random, the
  // same for each seed of the training.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=100,
    predicate_dim=100,
    rnn_size=300,
    num_rnn_layers=8,
    batch_size=80,
    optimizer={ type: 'adadelta', lr: 1.0, rho: 0.95 },
    num_epochs=500,
    patience=200,
    train_share=1,
    evaluation_share=1,
  )::
  local all = { type: 'elmo_srl', token_indexers: words.indexers() + elmo.indexers };
  local reader(share) = if share == 1 then all else { type: 'elmo_share', share: share, reader: all };
  {
    dataset_reader: reader(train_share),
    validation_dataset_reader: reader(evaluation_share),

    model: {
      type: 'elmo_srl',
      text_encoder: {
        text_field_embedder: {
          token_embedders: words.embedders(word_vectors, word_dim, trainable=true),
        },
        elmo: elmo_part,
        // The embedding of the predicate's indicator.
        feature_dim: predicate_dim,
        // Its input width follows from the embedders and from ELMo's placement.
        encoder: {
          type: 'alternating_lstm',
          hidden_size: rnn_size,
          num_layers: num_rnn_layers,
          recurrent_dropout_probability: 0.1,
          use_highway: true,
          // He et al.'s equations have one bias for each gate, the state's here, and none on the highway's path.
          use_input_projection_bias: false,
        },
      },
      // AllenNLP starts the weights of `alternating_lstm` orthogonal, its forget biases at 1 and its other biases at 0.
      initializer: { regexes: [['tag_projection.weight', { type: 'orthogonal' }]] },
      regularizer: elmo.regularizer(0.001),
    },

    trainer: {
      optimizer: optimizer,
      // Of each value of the gradient.
      grad_clipping: 1.0,
    },
  } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+f1')
    + data_files.loaders(batch_size, ['tokens']),
}
